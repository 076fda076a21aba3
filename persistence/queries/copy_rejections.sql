-- Takes over rejections from another database.
-- $1 shards int[]: the shard of each
-- $2 epochs bigint[]: its epoch
-- $3 seqs bigint[]: the number of its log entry
-- $4 organization_ids uuid[]: its organisation
-- $5 event_ids uuid[]: its event
-- $6 hold_ids uuid[]: its hold
-- $7 operations text[]: what was refused
-- $8 reasons text[]: why
-- $9 created_at timestamptz[]: when
-- $10 compensated_at timestamptz[]: when it was given back in Redis
INSERT INTO rejections (shard, epoch, seq, organization_id, event_id, hold_id, operation, reason, created_at, compensated_at)
SELECT *
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[], $8::text[],
    $9::timestamptz[], $10::timestamptz[])
