-- Lists the shards that Redis serves and of which nothing can be persisted, because the log has a gap after the mark.
SELECT h.shard, h.reason
FROM halts h
JOIN control c ON c.shard = h.shard AND c.epoch = h.epoch AND c.mode = 'redis'
JOIN shard_marks m ON m.shard = h.shard AND m.epoch = h.epoch AND m.seq = h.seq
ORDER BY h.shard
