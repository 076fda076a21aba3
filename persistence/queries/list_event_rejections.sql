-- Lists what was refused of an event's holds, the latest refusal of each, its age in seconds, and the log entry it was in if
-- that is a dead letter.
-- $1 event_id uuid: the event
SELECT DISTINCT ON (r.hold_id) r.hold_id, r.operation, r.reason,
    extract(epoch FROM clock_timestamp() - r.created_at)::float8 AS age_s, d.epoch || '-' || d.seq AS dead_letter
FROM rejections r
LEFT JOIN dead_letters d USING (shard, epoch, seq)
WHERE r.event_id = $1
ORDER BY r.hold_id, r.created_at DESC
