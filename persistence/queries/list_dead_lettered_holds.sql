-- Lists the holds whose log entry is a dead letter, as far as it can be told which they are: refused, and never rows.
-- $1 event_id uuid: the event, null for all
SELECT r.event_id, r.hold_id, d.epoch || '-' || d.seq AS entry, d.error
FROM rejections r
JOIN dead_letters d USING (shard, epoch, seq)
WHERE r.operation = 'hold' AND ($1::uuid IS NULL OR r.event_id = $1)
ORDER BY d.shard, d.epoch, d.seq
