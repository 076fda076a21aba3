-- Lists the tickets of some holds.
-- $1 hold_ids uuid[]: the holds
SELECT id, hold_id, zone, ordinal, sale_id
FROM tickets
WHERE hold_id = ANY ($1::uuid[])
