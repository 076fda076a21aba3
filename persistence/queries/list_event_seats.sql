-- Lists the seats of an event, and the hold that has each.
-- $1 event_id uuid: the event
SELECT ordinal, seat_id, zone, status, seat_hold_id AS hold_id
FROM seats
WHERE event_id = $1
ORDER BY ordinal
