-- Lists the latest changes of modes, the last one first.
-- $1 limit bigint: how many at most
SELECT id, shard, from_mode, from_epoch, mode, epoch, reason, actor, details, created_at
FROM transitions
ORDER BY id DESC
LIMIT $1
