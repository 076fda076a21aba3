-- Lists the entries of a stretch of a shard's log that could not be applied.
-- $1 shard int: the shard
-- $2 epoch bigint: its epoch
-- $3 after bigint: the last entry before the stretch
-- $4 to bigint: the last entry of the stretch
SELECT seq FROM dead_letters WHERE shard = $1 AND epoch = $2 AND seq > $3 AND seq <= $4
