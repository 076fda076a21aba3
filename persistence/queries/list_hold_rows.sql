-- Lists the rows of some holds, times in ms since 1970, and whether each is past its end by this database's clock.
-- $1 hold_ids uuid[]: the holds
SELECT hold_id, line, event_id, user_id, zone, ordinal, quantity, status,
    (extract(epoch FROM held_until) * 1000)::bigint AS ends_ms,
    (extract(epoch FROM created_at) * 1000)::bigint AS created_ms,
    (extract(epoch FROM ended_at) * 1000)::bigint AS ended_ms,
    ttl_ms, fingerprint, address, cart_token AS cart, checkout_id AS checkout, extension_key AS extension,
    release_reason AS reason, companions_declined AS declined, held_until <= clock_timestamp() AS overdue
FROM seat_holds
WHERE hold_id = ANY ($1::uuid[])
ORDER BY hold_id, line
