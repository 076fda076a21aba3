-- Lets another session deliver an event's rows.
-- $1 purpose integer: the number that stands for delivering
-- $2 event_id uuid: the event
SELECT pg_advisory_unlock($1::integer, hashtext($2::uuid::text));
