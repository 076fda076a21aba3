-- Notes that the log of a shard has a gap, after which nothing can be persisted.
-- $1 shard int: the shard
-- $2 epoch bigint: its epoch
-- $3 seq bigint: the last entry before the gap
-- $4 reason text: what an operator should know about it
INSERT INTO halts (shard, epoch, seq, reason)
VALUES ($1, $2, $3, $4)
ON CONFLICT (shard) DO UPDATE
SET epoch = excluded.epoch, seq = excluded.seq, reason = excluded.reason, created_at = clock_timestamp()
