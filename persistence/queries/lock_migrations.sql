-- Waits until no other process migrates this database; the lock lasts as long as the session.
-- $1 lock bigint: the number that stands for migrating
SELECT pg_advisory_lock($1::bigint)
