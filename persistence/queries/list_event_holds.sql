-- Lists the active holds of an event, and those that ended lately, a row per line, oldest first; times in ms since 1970.
-- $1 event_id uuid: the event
-- $2 ended_for_ms bigint: how long ago a hold may have ended, 0 for active ones only
WITH chosen AS (
    SELECT * FROM seat_holds WHERE event_id = $1 AND status = 'active'
    UNION ALL
    -- No hold lives for two days, and the index by holder says when each was made.
    SELECT * FROM seat_holds
    WHERE event_id = $1 AND status <> 'active' AND $2::bigint > 0
        AND created_at > clock_timestamp() - make_interval(days => 2, secs => $2::bigint / 1000.0)
        AND ended_at > clock_timestamp() - make_interval(secs => $2::bigint / 1000.0)
)
SELECT hold_id, line, user_id, zone, ordinal, quantity, status,
    (extract(epoch FROM held_until) * 1000)::bigint AS ends_ms,
    (extract(epoch FROM created_at) * 1000)::bigint AS created_ms,
    (extract(epoch FROM ended_at) * 1000)::bigint AS ended_ms,
    ttl_ms, fingerprint, address, cart_token AS cart, coalesce(checkout_id, '') AS checkout, extension_key AS extension, epoch, seq
FROM chosen
ORDER BY created_at, hold_id, line
