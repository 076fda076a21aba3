-- Gives a shard a mode and the epoch that begins with it, notes the change, and tells those who listen when it commits. A
-- change to Redis starts the mark of the epoch, and settles what an earlier epoch of Redis was still to give back: Redis was
-- built without it.
-- $1 shard int: the shard
-- $2 epoch bigint: the new epoch
-- $3 mode text: the new mode
-- $4 reason text: why
-- $5 actor text: who asked for it
-- $6 pinned boolean: whether only an operator may change it back
-- $7 details jsonb: what else an operator may want to know, as JSON text
-- $8 channel text: the channel of those who follow the modes
WITH before AS (
    SELECT mode, epoch FROM control WHERE shard = $1
), changed AS (
    UPDATE control
    SET mode = $3, epoch = $2, reason = $4, actor = $5, pinned = $6, closing_at = NULL, changed_at = clock_timestamp()
    WHERE shard = $1
), marked AS (
    INSERT INTO shard_marks (shard, epoch, seq)
    SELECT $1, $2, 0 WHERE $3 = 'redis'
), settled AS (
    UPDATE rejections SET compensated_at = now() WHERE $3 = 'redis' AND shard = $1 AND compensated_at IS NULL
), noted AS (
    INSERT INTO transitions (shard, from_mode, from_epoch, mode, epoch, reason, actor, details)
    SELECT $1, b.mode, b.epoch, $3, $2, $4, $5, $7 FROM before b
)
SELECT pg_notify($8, json_build_array($1::int, $2::bigint, $3::text)::text)
