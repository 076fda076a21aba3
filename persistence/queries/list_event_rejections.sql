-- Lists what was refused of an event's holds, the latest refusal of each, and its age in seconds.
-- $1 event_id uuid: the event
SELECT DISTINCT ON (hold_id) hold_id, operation, reason,
    extract(epoch FROM clock_timestamp() - created_at)::float8 AS age_s
FROM rejections
WHERE event_id = $1
ORDER BY hold_id, created_at DESC
