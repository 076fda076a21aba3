-- Moves the marks of shards that are served from Redis in the epoch given, if they still are where the writer read them. The
-- rows of the result are the shards that moved.
-- $1 shards int[]: the shards
-- $2 epochs bigint[]: the epoch of each
-- $3 from_seqs bigint[]: where each mark is expected
-- $4 to_seqs bigint[]: where it goes
-- $5 at_ms bigint[]: the time of the last entry
WITH locked AS (
    -- Always in the same order, or two persisters with several shards each could wait for one another.
    SELECT shard, epoch FROM shard_marks WHERE shard = ANY ($1::int[]) ORDER BY shard, epoch FOR UPDATE
)
UPDATE shard_marks m
SET seq = t.to_seq, at_ms = greatest(m.at_ms, t.at_ms), updated_at = now()
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS t (shard, epoch, from_seq, to_seq, at_ms)
JOIN locked l ON l.shard = t.shard AND l.epoch = t.epoch
JOIN control c ON c.shard = t.shard AND c.epoch = t.epoch AND c.mode = 'redis'
WHERE m.shard = t.shard AND m.epoch = t.epoch AND m.seq = t.from_seq
RETURNING m.shard
