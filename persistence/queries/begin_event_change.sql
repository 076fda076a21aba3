-- Waits until nobody else changes the configuration of an event; the lock lasts until end_event_change or the session's end.
-- $1 class integer: the class of these locks
-- $2 event_id uuid: the event
SELECT pg_advisory_lock($1::integer, hashtext($2::uuid::text))
