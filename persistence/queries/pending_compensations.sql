-- Refused decisions that have not been given back in Redis, because a persister died in between. A sale cannot be given back.
SELECT seq, organization_id, event_id, hold_id, operation, reason
FROM rejections
WHERE compensated_at IS NULL AND operation <> 'sell'
