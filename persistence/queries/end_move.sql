-- Puts what is on the way to a new place there.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
WITH arrived_zones AS (
    UPDATE zones SET zone = zone - 1000 WHERE event_id = $1 AND organization_id = $2 AND zone >= 1000
), arrived_seats AS (
    UPDATE seats SET ordinal = -1 - ordinal, zone = zone - 1000
    WHERE event_id = $1 AND organization_id = $2 AND ordinal < 0
), arrived_holds AS (
    UPDATE seat_holds SET ordinal = -1 - ordinal, zone = zone - 1000
    WHERE event_id = $1 AND organization_id = $2 AND zone >= 1000
)
UPDATE tickets SET ordinal = -1 - ordinal, zone = zone - 1000
WHERE event_id = $1 AND organization_id = $2 AND zone >= 1000
