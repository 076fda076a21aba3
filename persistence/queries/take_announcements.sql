-- Finds the oldest rows of the outbox that are not announced, by their events.
-- $1 limit integer: how many at most
SELECT organization_id, event_id, array_agg(id) AS ids
FROM (
    SELECT id, organization_id, event_id
    FROM outbox
    WHERE announced_at IS NULL
    ORDER BY id
    LIMIT $1::integer
) oldest
GROUP BY organization_id, event_id;
