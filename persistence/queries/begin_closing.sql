-- Notes that a shard's epoch in Redis is about to be closed and drained, if it is still the one that is meant. The row of the
-- result says so.
-- $1 shard int: the shard
-- $2 epoch bigint: the epoch
UPDATE control
SET closing_at = clock_timestamp()
WHERE shard = $1 AND epoch = $2 AND mode = 'redis'
RETURNING shard
