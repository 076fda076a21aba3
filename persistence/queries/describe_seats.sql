-- Gives seats the ids, rows, numbers and categories of another layout. Those that are available may become blocked, and those
-- that are blocked available.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 ordinals int[]: the seats
-- $4 seat_ids text[]: the id of each
-- $5 rows text[]: its row
-- $6 numbers int[]: its number
-- $7 categories text[]: its category
-- $8 statuses text[]: its status, null for the one it has
UPDATE seats s
SET seat_id = t.seat_id, row = t.row, number = t.number, category = t.category,
    status = CASE WHEN s.status IN ('available', 'blocked') THEN coalesce(t.status, s.status) ELSE s.status END,
    version = s.version + 1
FROM unnest($3::int[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[])
    AS t (ordinal, seat_id, row, number, category, status)
WHERE s.event_id = $1 AND s.organization_id = $2 AND s.ordinal = t.ordinal
