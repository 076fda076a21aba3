-- Takes the right to recover a shard, which one process at a time has, until the session ends or lets go of it.
-- $1 class int: the class of these locks
-- $2 shard int: the shard
SELECT pg_try_advisory_lock($1::int, $2::int)
