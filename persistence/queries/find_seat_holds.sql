-- Finds what has become of some seats of an event, and the hold that has each, if one does.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
-- $3 ordinals int[]: the seats
SELECT ordinal, status, seat_hold_id AS hold_id
FROM seats
WHERE organization_id = $1 AND event_id = $2 AND ordinal = ANY ($3::int[])
