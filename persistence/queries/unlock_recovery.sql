-- Lets go of the right to recover a shard.
-- $1 class int: the class of these locks
-- $2 shard int: the shard
SELECT pg_advisory_unlock($1::int, $2::int)
