-- Reads the oldest undelivered rows of an event, and whether each may be tried now.
-- $1 event_id uuid: the event
-- $2 limit integer: how many at most
SELECT id, organization_id, event_id, kind, payload::text AS payload, created_at, attempts,
       (retry_at IS NULL OR retry_at <= clock_timestamp()) AS due
FROM outbox
WHERE event_id = $1::uuid AND published_at IS NULL
ORDER BY id
LIMIT $2::integer;
