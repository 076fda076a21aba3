-- Lists the events of a shard that are in service, with the number of changes that the audit has of each after a given row. A
-- count, because rows of one event may commit in another order than that of their numbers.
-- $1 shard int: the shard
-- $2 after bigint: the audit row after which changes count
SELECT e.organization_id, e.id AS event_id, e.config_version, coalesce(c.changes, 0) AS changes
FROM events e
LEFT JOIN (
    SELECT event_id, count(*) AS changes
    FROM audit_log
    WHERE id > $2 AND action <> 'seat_reserve_failed'
    GROUP BY event_id
) c ON c.event_id = e.id
WHERE e.shard = $1 AND e.opened_at IS NOT NULL
ORDER BY e.created_at, e.id
