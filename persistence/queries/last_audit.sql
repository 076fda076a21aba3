-- The number of the last audit row. Read behind the fence of a shard, it is below the number of every later change of it.
SELECT coalesce(max(id), 0) FROM audit_log
