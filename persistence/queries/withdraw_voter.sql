-- Forgets a process that ends, and those that have long been silent.
-- $1 id uuid: the process
DELETE FROM voters WHERE id = $1 OR seen_at < clock_timestamp() - interval '1 hour'
