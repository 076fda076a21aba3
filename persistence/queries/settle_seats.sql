-- Makes seats say what the rows of holds and tickets say. The rows of the result are the seats that did not.
-- $1 event_ids uuid[]: the event of each seat
-- $2 ordinals int[]: the seats
UPDATE seats s
SET status = t.status, held_until = t.held_until, locked_at = t.locked_at, seat_hold_id = t.hold_id, ticket_id = t.ticket_id,
    version = version + 1
FROM (
    SELECT o.event_id, o.ordinal, o.status AS before,
        CASE WHEN k.id IS NOT NULL THEN 'sold' WHEN h.hold_id IS NOT NULL THEN 'held' WHEN o.status = 'blocked' THEN 'blocked'
            ELSE 'available' END AS status,
        CASE WHEN k.id IS NULL THEN h.held_until END AS held_until,
        CASE WHEN k.id IS NOT NULL THEN o.locked_at ELSE h.created_at END AS locked_at,
        coalesce(k.hold_id, h.hold_id) AS hold_id, k.id AS ticket_id
    FROM unnest($1::uuid[], $2::int[]) AS g (event_id, ordinal)
    JOIN seats o ON o.event_id = g.event_id AND o.ordinal = g.ordinal
    LEFT JOIN tickets k ON k.event_id = o.event_id AND k.ordinal = o.ordinal
    LEFT JOIN seat_holds h ON h.event_id = o.event_id AND h.ordinal = o.ordinal AND h.status = 'active'
) t
WHERE s.event_id = t.event_id AND s.ordinal = t.ordinal
    AND (s.status, s.held_until, s.seat_hold_id, s.ticket_id) IS DISTINCT FROM (t.status, t.held_until, t.hold_id, t.ticket_id)
RETURNING s.event_id, s.seat_id, t.before, s.status AS after
