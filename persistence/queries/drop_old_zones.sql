-- Deletes the zones of an event that is on the way to another layout, whose new zones are numbered from a thousand on. Blocked
-- places go along to the zone with the same id.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
WITH blocked AS (
    UPDATE zones n
    SET blocked = o.blocked
    FROM zones o
    WHERE n.event_id = $1 AND n.organization_id = $2 AND n.zone >= 1000 AND n.seats = 0
        AND o.event_id = $1 AND o.zone < 1000 AND o.zone_id = n.zone_id AND o.seats = 0
)
DELETE FROM zones WHERE event_id = $1 AND organization_id = $2 AND zone < 1000
