-- Inserts tickets that should be there. The rows of the result are those that are now; a seat that another ticket has stays
-- with that one.
-- $1 ids uuid[]: the tickets
-- $2 hold_ids uuid[]: the hold of each
-- $3 zones int[]: its zone
-- $4 ordinals int[]: its seat, null for general admission
-- $5 sales text[]: its sale
-- $6 sold_at timestamptz[]: when it was sold
INSERT INTO tickets (id, organization_id, event_id, zone, ordinal, hold_id, sale_id, user_id, created_at)
SELECT t.id, h.organization_id, h.event_id, t.zone, t.ordinal, t.hold_id, t.sale, h.user_id, t.sold_at
FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::text[], $6::timestamptz[])
    AS t (id, hold_id, zone, ordinal, sale, sold_at)
JOIN LATERAL (
    SELECT organization_id, event_id, user_id FROM seat_holds WHERE hold_id = t.hold_id AND status = 'converted' LIMIT 1
) h ON true
ON CONFLICT DO NOTHING
RETURNING id, hold_id
