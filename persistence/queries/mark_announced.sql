-- Notes that pub/sub was tried for these rows, which is all that has to happen to them where there is no webhook.
-- $1 ids bigint[]: the rows
-- $2 finished boolean: whether there is no webhook
UPDATE outbox
SET announced_at = clock_timestamp(),
    published_at = CASE WHEN $2::boolean THEN clock_timestamp() ELSE published_at END
WHERE id = ANY ($1::bigint[]);
