-- Inserts checkouts that should be there, and ends those that should have ended.
-- $1 event_ids uuid[]: the event of each
-- $2 ids text[]: the checkouts
-- $3 hold_ids uuid[]: a hold of each
-- $4 statuses text[]: what it should be
-- $5 at timestamptz[]: when it became that
INSERT INTO checkouts (id, organization_id, event_id, user_id, status, created_at, updated_at)
SELECT t.id, h.organization_id, h.event_id, h.user_id, t.status, t.at, t.at
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::timestamptz[]) AS t (event_id, id, hold_id, status, at)
JOIN LATERAL (
    SELECT organization_id, event_id, user_id FROM seat_holds WHERE hold_id = t.hold_id LIMIT 1
) h ON true
ON CONFLICT (event_id, id) DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at
WHERE excluded.status = 'completed' OR checkouts.status = 'open' AND excluded.status <> 'open'
RETURNING event_id, id
