-- Moves the marks of shards that are served from Redis in the epoch given, if they still are where the writer read them. The
-- result is how many moved.
-- $1 shards int[]: the shards
-- $2 epochs bigint[]: the epoch of each
-- $3 from_seqs bigint[]: where each mark is expected
-- $4 to_seqs bigint[]: where it goes
-- $5 at_ms bigint[]: the time of the last entry
SELECT advance_marks($1, $2, $3, $4, $5)
