-- Reads a hold of a user as JSON, with its event and this database's clock, whether it lives or ended long ago. Times are in
-- ms since 1970.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: its owner
-- $3 hold_id uuid: the hold
SELECT h.event_id, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
    json_build_array(h.hold_id, h.user_id, h.status, (extract(epoch FROM h.held_until) * 1000)::bigint,
        (extract(epoch FROM h.created_at) * 1000)::bigint, h.ttl_ms, h.fingerprint, h.address, h.cart_token,
        coalesce(h.checkout_id, ''), h.extension_key, h.epoch, h.seq, (
            SELECT json_agg(json_build_array(zone, ordinal, quantity) ORDER BY line)
            FROM seat_holds
            WHERE hold_id = $3 AND organization_id = $1
        ))::text AS hold
FROM seat_holds h
WHERE h.hold_id = $3 AND h.line = 0 AND h.organization_id = $1 AND h.user_id = $2
