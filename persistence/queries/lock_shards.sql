-- Takes the fence of the shards for a writer. What a writer may do is read in a later statement, which then sees everything
-- that was committed before the lock was granted.
-- $1 class int: the class of Holdfast's shard locks
-- $2 shards int[]: the shards, in ascending order
SELECT pg_advisory_xact_lock_shared($1::int, shard) FROM unnest($2::int[]) AS t (shard)
