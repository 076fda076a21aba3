-- The checkouts as the digest has them.
-- $1 at timestamptz: the moment
SELECT jsonb_build_array(event_id, id, organization_id, user_id, status)::text AS line
FROM checkouts
WHERE $1::timestamptz IS NOT NULL
ORDER BY event_id, id COLLATE "C"
