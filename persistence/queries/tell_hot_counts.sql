-- Tells whoever has asked what a hot cache knows.
-- $1 channel text: where they listen
-- $2 messages text[]: the parts of the answer
SELECT count(pg_notify($1, message)) FROM unnest($2::text[]) AS t (message)
