-- Notes that what was refused here has been given back in Redis.
-- $1 hold_ids uuid[]: the holds
UPDATE rejections
SET compensated_at = now()
WHERE hold_id = ANY ($1::uuid[]) AND compensated_at IS NULL AND operation <> 'sell'
