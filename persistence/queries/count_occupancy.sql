-- Reads what is held, sold, blocked and free in each zone of some events, from the counters that every statement keeps which
-- changes a unit. A seated zone may have more seats than it may fill, so both limits bind. Of the free seats, it tells how many
-- are wheelchair seats, how many companion seats, and how many of these are kept for somebody.
-- $1 organization_ids uuid[]: the organisation of each event
-- $2 event_ids uuid[]: the events
SELECT z.organization_id, z.event_id, z.zone_id, z.name, z.capacity, z.held, z.sold, z.blocked,
    greatest(0, least(z.capacity, CASE z.seats WHEN 0 THEN z.capacity ELSE z.seats END - z.blocked) - z.held - z.sold) AS free,
    coalesce(a.wheelchair, 0) AS wheelchair, coalesce(a.companion, 0) AS companion, coalesce(k.kept, 0) AS kept
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (organization_id, event_id)
JOIN zones z ON z.organization_id = wanted.organization_id AND z.event_id = wanted.event_id
LEFT JOIN LATERAL (
    SELECT s.zone, count(*) FILTER (WHERE s.category = 'wheelchair')::int AS wheelchair,
        count(*) FILTER (WHERE s.category = 'companion')::int AS companion
    FROM seats s
    WHERE s.event_id = wanted.event_id AND s.category IN ('wheelchair', 'companion') AND s.status = 'available'
    GROUP BY s.zone
) a ON a.zone = z.zone
LEFT JOIN LATERAL (
    SELECT s.zone, count(*)::int AS kept FROM kept_seats(wanted.event_id) s GROUP BY s.zone
) k ON k.zone = z.zone
ORDER BY z.event_id, z.zone;
