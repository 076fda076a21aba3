-- Keeps log entries of an epoch that is over and that were never applied.
-- $1 shards int[]: the shard of each
-- $2 epochs bigint[]: its epoch
-- $3 seqs bigint[]: its number
-- $4 fields text[]: its fields, JSON
INSERT INTO quarantine (shard, epoch, seq, fields)
SELECT shard, epoch, seq, fields::jsonb
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::text[]) AS t (shard, epoch, seq, fields)
ON CONFLICT (shard, epoch, seq) DO NOTHING
