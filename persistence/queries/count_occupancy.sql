-- Reads what is held, sold, blocked and free in each zone of some events, from the counters that every statement keeps which
-- changes a unit. A seated zone may have more seats than it may fill, so both limits bind.
-- $1 organization_ids uuid[]: the organisation of each event
-- $2 event_ids uuid[]: the events
SELECT z.organization_id, z.event_id, z.zone_id, z.name, z.capacity, z.held, z.sold, z.blocked,
    greatest(0, least(z.capacity, CASE z.seats WHEN 0 THEN z.capacity ELSE z.seats END - z.blocked) - z.held - z.sold) AS free
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (organization_id, event_id)
JOIN zones z ON z.organization_id = wanted.organization_id AND z.event_id = wanted.event_id
ORDER BY z.event_id, z.zone;
