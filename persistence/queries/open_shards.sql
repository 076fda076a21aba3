-- Declares shards as served from Redis in an epoch that was opened by hand, on servers of one's own.
-- $1 shards int[]: the shards
-- $2 epoch bigint: the epoch
WITH opened AS (
    INSERT INTO control (shard, epoch, reason, actor)
    SELECT shard, $2, 'first start', 'holdfast' FROM unnest($1::int[]) AS t (shard)
    ON CONFLICT (shard) DO NOTHING
    RETURNING shard, epoch
), marked AS (
    INSERT INTO shard_marks (shard, epoch, seq)
    SELECT shard, epoch, 0 FROM opened
    ON CONFLICT (shard, epoch) DO NOTHING
)
SELECT setval('epochs', greatest($2, last_value)) FROM epochs
