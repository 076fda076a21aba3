-- Takes an event's seats, holds and tickets out of their old places, on the way to new ones: seats that go are deleted, ordinals
-- become -1 less the new ordinal, and zones the new index and a thousand. The new zones are there already, and the seats' ids
-- are given anew afterwards.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 ordinals int[]: the old ordinal of each seat that stays
-- $4 new_ordinals int[]: its new one
-- $5 zones int[]: the old index of each zone that stays
-- $6 new_zones int[]: its new one
-- $7 seat_zones int[]: the new zone of each seat that stays
WITH placed AS MATERIALIZED (
    SELECT ordinal, -1 - new_ordinal AS new_ordinal, zone + 1000 AS zone
    FROM unnest($3::int[], $4::int[], $7::int[]) AS t (ordinal, new_ordinal, zone)
), zoned AS MATERIALIZED (
    SELECT zone, new_zone + 1000 AS new_zone FROM unnest($5::int[], $6::int[]) AS t (zone, new_zone)
), gone AS (
    DELETE FROM seats
    WHERE event_id = $1 AND organization_id = $2 AND ordinal <> ALL ($3::int[])
), moved_seats AS (
    UPDATE seats s
    SET ordinal = p.new_ordinal, zone = p.zone, seat_id = 'moving ' || s.ordinal
    FROM placed p
    WHERE s.event_id = $1 AND s.organization_id = $2 AND s.ordinal = p.ordinal
), moved_holds AS (
    UPDATE seat_holds h
    SET ordinal = p.new_ordinal, zone = p.zone
    FROM placed p
    WHERE h.event_id = $1 AND h.organization_id = $2 AND h.ordinal = p.ordinal
), moved_places AS (
    UPDATE seat_holds h
    SET zone = z.new_zone
    FROM zoned z
    WHERE h.event_id = $1 AND h.organization_id = $2 AND h.ordinal IS NULL AND h.zone = z.zone
), moved_tickets AS (
    UPDATE tickets t
    SET ordinal = p.new_ordinal, zone = p.zone
    FROM placed p
    WHERE t.event_id = $1 AND t.organization_id = $2 AND t.ordinal = p.ordinal
)
UPDATE tickets t
SET zone = z.new_zone
FROM zoned z
WHERE t.event_id = $1 AND t.organization_id = $2 AND t.ordinal IS NULL AND t.zone = z.zone
