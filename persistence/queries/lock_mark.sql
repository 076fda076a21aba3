-- Keeps persisters from moving a shard's mark until the transaction ends. They lock the same row, after the same fence.
-- $1 shard int: the shard
SELECT m.seq
FROM shard_marks m
JOIN control c ON c.shard = m.shard AND c.epoch = m.epoch
WHERE m.shard = $1
FOR UPDATE OF m
