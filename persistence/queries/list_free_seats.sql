-- Lists the next free seats of a zone in their order, best first.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 after integer: the ordinal after which to look
-- $4 last integer: the ordinal of the zone's last seat
-- $5 limit integer: how many at most
SELECT ordinal
FROM seats
WHERE event_id = $1 AND organization_id = $2 AND ordinal > $3 AND ordinal <= $4 AND status = 'available'
ORDER BY ordinal
LIMIT $5::integer
