-- Declares shards that have never been served as served from Redis, in the epoch given.
-- $1 shards int[]: the shards
-- $2 epoch bigint: the epoch
WITH opened AS (
    INSERT INTO control (shard, epoch, reason, actor)
    SELECT shard, $2, 'first start', 'holdfast' FROM unnest($1::int[]) AS t (shard)
    ON CONFLICT (shard) DO NOTHING
    RETURNING shard, epoch
)
INSERT INTO shard_marks (shard, epoch, seq)
SELECT shard, epoch, 0 FROM opened
ON CONFLICT (shard, epoch) DO NOTHING
