-- Refused decisions that have not been given back in Redis, because a persister died in between, with their shard and epoch.
-- A sale cannot be given back, and neither can what belongs to an epoch that is over.
SELECT r.shard, r.epoch, r.seq, r.organization_id, r.event_id, r.hold_id, r.operation, r.reason
FROM rejections r
JOIN control c ON c.shard = r.shard AND c.epoch = r.epoch AND c.mode = 'redis'
WHERE r.compensated_at IS NULL AND r.operation <> 'sell'
