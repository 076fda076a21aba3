-- Reads who serves each shard, in which epoch, and the last log entry that is applied.
-- $1 shards int[]: the shards
SELECT c.shard, c.epoch, c.mode, coalesce(m.seq, 0) AS mark
FROM control c
LEFT JOIN shard_marks m ON m.shard = c.shard AND m.epoch = c.epoch
WHERE c.shard = ANY ($1::int[])
