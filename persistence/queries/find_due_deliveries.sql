-- Finds the events whose oldest undelivered row is due, the one that waits longest first. It steps from event to event
-- in the index, so that a long queue of one event costs no more than a short one.
-- $1 busy uuid[]: events to leave out
-- $2 limit integer: how many at most
WITH RECURSIVE heads AS (
    (SELECT event_id, id, retry_at FROM outbox WHERE published_at IS NULL ORDER BY event_id, id LIMIT 1)
    UNION ALL
    SELECT next.event_id, next.id, next.retry_at
    FROM heads
    CROSS JOIN LATERAL (
        SELECT event_id, id, retry_at
        FROM outbox
        WHERE published_at IS NULL AND event_id > heads.event_id
        ORDER BY event_id, id
        LIMIT 1
    ) AS next
)
SELECT event_id
FROM heads
WHERE (retry_at IS NULL OR retry_at <= clock_timestamp()) AND event_id <> ALL ($1::uuid[])
ORDER BY id
LIMIT $2::integer;
