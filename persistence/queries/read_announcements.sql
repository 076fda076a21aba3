-- Reads what rows of the outbox tell, in their order.
-- $1 ids bigint[]: the rows
SELECT id, organization_id, event_id, kind, payload::text AS payload
FROM outbox
WHERE id = ANY ($1::bigint[])
ORDER BY id;
