-- Finds a shard's active holds that ended before a moment, oldest first, with their last log entry and this database's clock.
-- $1 shard int: the shard
-- $2 before timestamptz: the moment
-- $3 limit bigint: how many at most
SELECT h.hold_id, h.event_id, max(h.epoch) AS epoch, max(h.seq) AS seq, clock_timestamp() AS now
FROM seat_holds h
JOIN events e ON e.id = h.event_id
WHERE h.status = 'active' AND h.held_until < $2 AND e.shard = $1
GROUP BY h.hold_id, h.event_id
ORDER BY min(h.held_until)
LIMIT $3
