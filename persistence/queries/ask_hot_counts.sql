-- Asks all front ends what their hot caches know.
-- $1 channel text: where they listen
-- $2 request text: what their answers have to name
SELECT pg_notify($1, $2)
