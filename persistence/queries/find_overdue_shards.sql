-- Finds the shards that have active holds well past their end.
-- $1 grace_s double precision: how long past, in seconds
SELECT DISTINCT e.shard
FROM seat_holds h
JOIN events e ON e.id = h.event_id
WHERE h.status = 'active' AND h.held_until < clock_timestamp() - make_interval(secs => $1::double precision)
ORDER BY e.shard
