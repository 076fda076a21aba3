-- Lists what was refused of a stretch of a shard's log.
-- $1 shard int: the shard
-- $2 epoch bigint: its epoch
-- $3 after bigint: the last entry before the stretch
-- $4 to bigint: the last entry of the stretch
SELECT seq, event_id, hold_id, operation FROM rejections WHERE shard = $1 AND epoch = $2 AND seq > $3 AND seq <= $4
