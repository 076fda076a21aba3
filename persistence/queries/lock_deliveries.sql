-- Tries to become the one session that delivers an event's rows. What it then delivers must be read by a later statement:
-- this one's snapshot is older than the lock.
-- $1 purpose integer: the number that stands for delivering
-- $2 event_id uuid: the event
SELECT pg_try_advisory_lock($1::integer, hashtext($2::uuid::text));
