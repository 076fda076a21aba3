-- Reads one seat as it is committed, without who has it.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
-- $3 seat_id text: the seat
SELECT status, held_until
FROM seats
WHERE organization_id = $1 AND event_id = $2 AND seat_id = $3
