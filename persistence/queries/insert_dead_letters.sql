-- Keeps log entries that cannot be applied.
-- $1 shards int[]: the shard of each
-- $2 epochs bigint[]: its epoch
-- $3 seqs bigint[]: its number
-- $4 fields text[]: its fields, JSON
-- $5 errors text[]: what is wrong with it
INSERT INTO dead_letters (shard, epoch, seq, fields, error)
SELECT shard, epoch, seq, fields::jsonb, error
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) AS t (shard, epoch, seq, fields, error)
ON CONFLICT (shard, epoch, seq) DO NOTHING
