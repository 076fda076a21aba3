-- Counts the shards that were ever declared.
SELECT count(*) FROM control
