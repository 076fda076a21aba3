-- The marks of epochs that are over, which nobody moves any more.
-- $1 shards int[]: the shard of each
-- $2 epochs bigint[]: the epoch of each
SELECT m.shard, m.epoch, m.seq
FROM shard_marks m
JOIN unnest($1::int[], $2::bigint[]) AS t (shard, epoch) ON t.shard = m.shard AND t.epoch = m.epoch
