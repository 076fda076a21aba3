-- Counts the units of each zone of an organisation's event.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
SELECT zone, capacity, seats, held, sold, blocked
FROM zones
WHERE event_id = $1 AND organization_id = $2
ORDER BY zone
