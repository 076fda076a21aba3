-- Counts what is held, sold, blocked and free in each zone of some events. Seats are counted by their own status, general
-- admission by active holds and tickets. A seated zone may have more seats than it may fill, so both limits bind.
-- $1 organization_ids uuid[]: the organisation of each event
-- $2 event_ids uuid[]: the events
WITH wanted AS (
    SELECT organization_id, event_id FROM unnest($1::uuid[], $2::uuid[]) AS given (organization_id, event_id)
),
seat_counts AS (
    SELECT event_id, zone,
           count(*) FILTER (WHERE status = 'held') AS held,
           count(*) FILTER (WHERE status = 'sold') AS sold,
           count(*) FILTER (WHERE status = 'blocked') AS blocked,
           count(*) FILTER (WHERE status = 'available') AS available
    FROM seats
    WHERE event_id = ANY ($2::uuid[])
    GROUP BY event_id, zone
),
held_places AS (
    SELECT event_id, zone, sum(quantity) AS held
    FROM seat_holds
    WHERE event_id = ANY ($2::uuid[]) AND status = 'active' AND ordinal IS NULL
    GROUP BY event_id, zone
),
sold_places AS (
    SELECT event_id, zone, count(*) AS sold
    FROM tickets
    WHERE event_id = ANY ($2::uuid[]) AND ordinal IS NULL
    GROUP BY event_id, zone
),
counted AS (
    SELECT zones.organization_id, zones.event_id, zones.zone, zones.zone_id, zones.name, zones.capacity, zones.seats,
           CASE WHEN zones.seats > 0 THEN coalesce(seat_counts.held, 0) ELSE coalesce(held_places.held, 0) END AS held,
           CASE WHEN zones.seats > 0 THEN coalesce(seat_counts.sold, 0) ELSE coalesce(sold_places.sold, 0) END AS sold,
           CASE WHEN zones.seats > 0 THEN coalesce(seat_counts.blocked, 0) ELSE zones.blocked END AS blocked,
           coalesce(seat_counts.available, 0) AS available
    FROM zones
    JOIN wanted USING (organization_id, event_id)
    LEFT JOIN seat_counts USING (event_id, zone)
    LEFT JOIN held_places USING (event_id, zone)
    LEFT JOIN sold_places USING (event_id, zone)
)
SELECT organization_id, event_id, zone_id, name, capacity, held::bigint, sold::bigint, blocked::bigint,
       greatest(0, CASE WHEN seats > 0 THEN least(capacity - held - sold, available)
                        ELSE capacity - held - sold - blocked END)::bigint AS free
FROM counted
ORDER BY event_id, zone;
