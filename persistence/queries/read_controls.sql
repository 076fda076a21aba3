-- Reads who serves each shard, in which epoch and why, and the last log entry that is applied.
-- $1 shards int[]: the shards
SELECT c.shard, c.epoch, c.mode, coalesce(m.seq, 0) AS mark, c.pinned, c.reason, c.actor, c.changed_at
FROM control c
LEFT JOIN shard_marks m ON m.shard = c.shard AND m.epoch = c.epoch
WHERE c.shard = ANY ($1::int[])
ORDER BY c.shard
