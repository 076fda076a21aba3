-- The counters of zones as the digest has them: units held past the end of their hold are free.
-- $1 at timestamptz: the moment
SELECT jsonb_build_array(z.event_id, z.zone, z.zone_id, z.capacity, z.seats, z.held - coalesce(o.units, 0), z.sold,
    z.blocked)::text AS line
FROM zones z
LEFT JOIN (
    SELECT event_id, zone, sum(quantity) AS units
    FROM seat_holds
    WHERE status = 'active' AND held_until <= $1
    GROUP BY event_id, zone
) o USING (event_id, zone)
ORDER BY z.event_id, z.zone
