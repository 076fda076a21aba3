-- Takes over dead letters from another database.
-- $1 shards int[]: the shard of each
-- $2 epochs bigint[]: its epoch
-- $3 seqs bigint[]: its number
-- $4 fields text[]: its fields, JSON
-- $5 errors text[]: what is wrong with it
-- $6 created_at timestamptz[]: when it was kept
INSERT INTO dead_letters (shard, epoch, seq, fields, error, created_at)
SELECT shard, epoch, seq, fields::jsonb, error, created_at
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[])
    AS t (shard, epoch, seq, fields, error, created_at)
