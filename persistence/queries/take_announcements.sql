-- Reads the oldest rows of the outbox that are not announced.
-- $1 limit integer: how many at most
SELECT id, organization_id, event_id, kind, payload::text AS payload
FROM outbox
WHERE announced_at IS NULL
ORDER BY id
LIMIT $1::integer;
