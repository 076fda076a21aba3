-- Finds zones whose counters are not what the rows say, or do not add up to the zone's places.
-- $1 event_id uuid: the event, null for all
WITH counted AS (
    SELECT z.event_id, z.zone_id, z.capacity, z.seats, z.held, z.sold, z.blocked,
        coalesce(h.units, 0) AS held_rows, coalesce(k.tickets, 0) AS sold_rows, coalesce(s.seats, 0) AS seat_rows,
        coalesce(s.available, 0) AS available, coalesce(s.blocked, 0) AS blocked_rows
    FROM zones z
    LEFT JOIN (
        SELECT event_id, zone, sum(quantity) AS units FROM seat_holds WHERE status = 'active' GROUP BY event_id, zone
    ) h USING (event_id, zone)
    LEFT JOIN (SELECT event_id, zone, count(*) AS tickets FROM tickets GROUP BY event_id, zone) k USING (event_id, zone)
    LEFT JOIN (
        SELECT event_id, zone, count(*) AS seats, count(*) FILTER (WHERE status = 'available') AS available,
            count(*) FILTER (WHERE status = 'blocked') AS blocked
        FROM seats
        GROUP BY event_id, zone
    ) s USING (event_id, zone)
    WHERE $1::uuid IS NULL OR z.event_id = $1
), checked AS (
    SELECT event_id, zone_id, unnest(ARRAY[
        CASE WHEN held <> held_rows THEN 'counts ' || held || ' held, its holds have ' || held_rows END,
        CASE WHEN sold <> sold_rows THEN 'counts ' || sold || ' sold, it has ' || sold_rows || ' tickets' END,
        CASE WHEN seats > 0 AND blocked <> blocked_rows
            THEN 'counts ' || blocked || ' blocked, it has ' || blocked_rows || ' blocked seats' END,
        CASE WHEN seats <> seat_rows THEN 'has ' || seat_rows || ' seats and should have ' || seats END,
        CASE WHEN seats > 0 AND available + held + sold + blocked <> seats
            THEN available || ' free, ' || held || ' held, ' || sold || ' sold and ' || blocked || ' blocked are not its '
                || seats || ' seats' END,
        CASE WHEN held + sold + CASE WHEN seats = 0 THEN blocked ELSE 0 END > capacity
            THEN held || ' held, ' || sold || ' sold and ' || blocked || ' blocked are more than its capacity of ' || capacity
            END
    ]) AS problem
    FROM counted
)
SELECT event_id, 'zone ' || zone_id AS subject, problem
FROM checked
WHERE problem IS NOT NULL
ORDER BY event_id, zone_id
