-- Takes the fence of a shard for a writer, until let_go_shard or the session's end.
-- $1 class int: the class of Holdfast's shard locks
-- $2 shard int: the shard
SELECT pg_advisory_lock_shared($1::int, $2::int)
