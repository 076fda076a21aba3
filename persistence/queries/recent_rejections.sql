-- What was rejected in shards and Redis may still grant, or granted so lately that somebody may wait for it.
-- $1 shards int[]: the shards
-- $2 unapplicable text: the refusal that a dead letter stands for
SELECT shard, epoch, seq, reason
FROM rejections
WHERE shard = ANY ($1::int[]) AND (compensated_at IS NULL OR compensated_at > now() - interval '1 minute')
UNION ALL
SELECT shard, epoch, seq, $2::text
FROM dead_letters
WHERE shard = ANY ($1::int[])
