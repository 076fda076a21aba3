-- The holds as the digest has them: one past its end is expired.
-- $1 at timestamptz: the moment
SELECT jsonb_build_array(hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity,
    CASE WHEN status = 'active' AND held_until <= $1 THEN 'expired' ELSE status END,
    extract(epoch FROM held_until), source, cart_token, fingerprint, address, checkout_id, extension_key,
    CASE WHEN status = 'active' AND held_until <= $1 THEN 'ttl_expired' ELSE release_reason END, ttl_ms,
    extract(epoch FROM created_at), CASE WHEN status <> 'expired' THEN extract(epoch FROM ended_at) END,
    companions_declined)::text AS line
FROM seat_holds
WHERE $1::timestamptz IS NOT NULL
ORDER BY hold_id, line
