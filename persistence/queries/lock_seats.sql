-- Locks seats of an event, in their order, without waiting: a seat that somebody else has locked is left out of the result.
-- NOWAIT would say the same of one seat; of several it would not say which.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 ordinals int[]: the seats
SELECT ordinal
FROM seats
WHERE event_id = $1 AND organization_id = $2 AND ordinal = ANY ($3::int[])
ORDER BY ordinal
FOR UPDATE SKIP LOCKED
