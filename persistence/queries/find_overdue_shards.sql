-- Finds the shards that have active holds well past their end, or past it at all where Postgres serves, and who serves them.
-- $1 grace_s double precision: how long past, in seconds
SELECT DISTINCT e.shard, c.mode
FROM seat_holds h
JOIN events e ON e.id = h.event_id
JOIN control c ON c.shard = e.shard
WHERE h.status = 'active' AND h.held_until < clock_timestamp()
    AND (c.mode = 'db' OR h.held_until < clock_timestamp() - make_interval(secs => $1::double precision))
ORDER BY e.shard
