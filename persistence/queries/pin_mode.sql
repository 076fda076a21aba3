-- Lets only an operator change a shard's mode from now on, or lets it change by itself again.
-- $1 shard int: the shard
-- $2 epoch bigint: the epoch it must be in
-- $3 pinned boolean: whether only an operator may
-- $4 reason text: why
-- $5 actor text: who wants it
UPDATE control
SET pinned = $3, reason = $4, actor = $5
WHERE shard = $1 AND epoch = $2
RETURNING shard
