-- Lets the next one change the configuration of an event.
-- $1 class integer: the class of these locks
-- $2 event_id uuid: the event
SELECT pg_advisory_unlock($1::integer, hashtext($2::uuid::text))
