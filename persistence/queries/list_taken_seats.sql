-- Lists the seats of an organisation's event that are not available.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
SELECT ordinal, status
FROM seats
WHERE event_id = $1 AND organization_id = $2 AND status <> 'available'
ORDER BY ordinal
