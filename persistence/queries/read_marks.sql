-- The mark of every shard that is served from Redis, in its current epoch.
-- $1 shards int[]: the shards
SELECT c.shard, c.epoch, m.seq
FROM control c
JOIN shard_marks m ON m.shard = c.shard AND m.epoch = c.epoch
WHERE c.shard = ANY ($1::int[]) AND c.mode = 'redis'
ORDER BY c.shard
