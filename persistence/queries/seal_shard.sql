-- Takes the fence of a shard exclusively: every writer has ended, and none begins until the transaction ends.
-- $1 class int: the class of Holdfast's shard locks
-- $2 shard int: the shard
SELECT pg_advisory_xact_lock($1::int, $2::int)
