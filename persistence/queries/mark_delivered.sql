-- Notes that the webhook has taken these rows.
-- $1 ids bigint[]: the rows
UPDATE outbox
SET published_at = clock_timestamp(), attempts = attempts + 1
WHERE id = ANY ($1::bigint[]);
