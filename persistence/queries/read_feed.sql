-- Reads what was announced of an event after a position, oldest first.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
-- $3 after bigint: the position
-- $4 limit integer: how many at most
SELECT position, kind, payload::text AS payload
FROM outbox
WHERE organization_id = $1 AND event_id = $2 AND position > $3
ORDER BY position
LIMIT $4::integer
