-- Notes that a process is alive, whether it reaches Redis, and which shards it wants taken from it.
-- $1 id uuid: the process
-- $2 kind text: front end or keeper
-- $3 name text: what operators call it
-- $4 reaches_redis boolean: whether Redis answers it
-- $5 shards int[]: the shards it votes against
-- $6 epochs bigint[]: the epoch of each
-- $7 reasons text[]: why
INSERT INTO voters (id, kind, name, seen_at, reaches_redis, shards, epochs, reasons)
VALUES ($1, $2, $3, clock_timestamp(), $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, reaches_redis = excluded.reaches_redis, shards = excluded.shards, epochs = excluded.epochs,
    reasons = excluded.reasons
