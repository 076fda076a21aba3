-- Gives these rows the next positions in the feed, in the order of their ids, and tells those who follow it. Pub/sub is all
-- that happens to them besides where there is no webhook.
-- $1 ids bigint[]: the rows
-- $2 finished boolean: whether there is no webhook
-- $3 channel text: the channel of those who follow the feed
-- $4 told text[]: what they are told, one message for each event
WITH numbered AS MATERIALIZED (
    SELECT id, nextval('feed_positions') AS position
    FROM (SELECT id FROM unnest($1::bigint[]) AS t (id) ORDER BY id) ordered
), marked AS (
    UPDATE outbox o
    SET announced_at = clock_timestamp(), position = n.position,
        published_at = CASE WHEN $2::boolean THEN clock_timestamp() ELSE o.published_at END
    FROM numbered n
    WHERE o.id = n.id
)
SELECT count(pg_notify($3, message)) FROM unnest($4::text[]) AS t (message)
