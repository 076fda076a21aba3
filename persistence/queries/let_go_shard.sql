-- Lets go of the fence of a shard.
-- $1 class int: the class of Holdfast's shard locks
-- $2 shard int: the shard
SELECT pg_advisory_unlock_shared($1::int, $2::int)
