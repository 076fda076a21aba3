-- Notes that a migration is applied, in the transaction that applies it.
-- $1 number integer: its number
-- $2 name text: its file's name without the suffix
-- $3 digest text: SHA-256 of its text, in hexadecimal
INSERT INTO schema_migrations (number, name, digest)
VALUES ($1, $2, $3)
