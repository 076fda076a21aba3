-- The tickets as the digest has them.
-- $1 at timestamptz: the moment
SELECT jsonb_build_array(id, organization_id, event_id, zone, ordinal, hold_id, sale_id, user_id,
    extract(epoch FROM created_at))::text AS line
FROM tickets
WHERE $1::timestamptz IS NOT NULL
ORDER BY id
