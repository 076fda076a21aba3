-- Declares shards that have never been in service, which are to be recovered before anything serves them.
-- $1 shards int[]: the shards
INSERT INTO control (shard, epoch, mode, reason, actor)
SELECT t.shard, nextval('epochs'), 'recovering', 'first start', 'holdfast'
FROM unnest($1::int[]) AS t (shard)
WHERE NOT EXISTS (SELECT FROM control c WHERE c.shard = t.shard)
ORDER BY t.shard
ON CONFLICT (shard) DO NOTHING
