-- Declares shards as served by Postgres, in the epoch given.
-- $1 shards int[]: the shards
-- $2 epoch bigint: the epoch
INSERT INTO control (shard, epoch, mode, reason, actor)
SELECT shard, $2, 'db', 'benchmark', 'holdfast' FROM unnest($1::int[]) AS t (shard)
ON CONFLICT (shard) DO UPDATE SET epoch = excluded.epoch, mode = excluded.mode
