-- Moves the mark of a shard that the transaction has locked, and tells those who listen for marks, and publishers that there
-- is work, when this commits.
-- $1 shard int: the shard
-- $2 epoch bigint: its epoch
-- $3 seq bigint: the number of its last change
-- $4 at_ms bigint: the time of that
-- $5 marks_channel text: the channel of the marks
-- $6 payload text: the mark, as listeners read it
-- $7 outbox_channel text: the channel of the publishers
WITH moved AS (
    UPDATE shard_marks SET seq = $3, at_ms = greatest(at_ms, $4), updated_at = now() WHERE shard = $1 AND epoch = $2
)
SELECT pg_notify($5, $6), pg_notify($7, '')
