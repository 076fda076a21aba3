-- Notes what is held, sold and blocked of every event that is or was on sale, once a minute. The rows of the result are the
-- events noted.
INSERT INTO occupancy_snapshots (event_id, taken_at, organization_id, capacity, held, sold, blocked)
SELECT z.event_id, date_trunc('minute', now()), z.organization_id, sum(z.capacity), sum(z.held), sum(z.sold), sum(z.blocked)
FROM zones z
JOIN events e ON e.id = z.event_id
WHERE e.state IN ('published', 'live', 'closed')
GROUP BY z.event_id, z.organization_id
ON CONFLICT (event_id, taken_at) DO NOTHING
RETURNING event_id
