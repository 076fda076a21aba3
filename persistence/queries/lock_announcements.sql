-- Tries to become the one session that announces; the lock lasts as long as the session.
-- $1 purpose integer: the number that stands for announcing
SELECT pg_try_advisory_lock($1::integer, 0);
