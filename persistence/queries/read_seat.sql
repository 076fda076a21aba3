-- Reads one seat as it is committed, without who has it, or for whom it is kept.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
-- $3 seat_id text: the seat
SELECT CASE WHEN status = 'available' AND ordinal IN (SELECT k.ordinal FROM kept_seats($2) k) THEN 'kept' ELSE status END AS status,
    held_until
FROM seats
WHERE organization_id = $1 AND event_id = $2 AND seat_id = $3
