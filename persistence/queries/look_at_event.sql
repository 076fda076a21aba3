-- Reads as JSON, at one moment, who serves a shard and what calls to one of its events want to know: the seats and zones they
-- name, the wheelchair seats that companion seats among them belong to, and the holds that matter to them, which are those
-- named, those on these seats, the live and recent ones of the users, the live ones of the addresses, and the first that are
-- overdue. Times are in ms since 1970.
-- $1 shard int: the shard
-- $2 event_id uuid: the event
-- $3 organization_id uuid: its organisation
-- $4 hold_ids uuid[]: the holds
-- $5 ordinals int[]: the seats, to which those of the holds are added
-- $6 zones int[]: the zones, to which those of the holds are added
-- $7 user_ids uuid[]: the users
-- $8 addresses text[]: the addresses
-- $9 window_ms bigint: how far back a hold is recent
-- $10 overdue integer: how many overdue holds at most
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), named AS MATERIALIZED (
    -- OFFSET 0 has holds looked up by their id, each for itself. The event's own index would lead to all of its holds.
    SELECT h.zone, h.ordinal
    FROM unnest($4::uuid[]) AS t (hold_id)
    CROSS JOIN LATERAL (SELECT * FROM seat_holds WHERE hold_id = t.hold_id OFFSET 0) h
    WHERE h.event_id = $2 AND h.organization_id = $3
), asked_rows AS MATERIALIZED (
    SELECT ordinal, zone, status, seat_hold_id, companion_of, category
    FROM seats
    WHERE event_id = $2 AND organization_id = $3
        AND ordinal = ANY ($5::int[] || ARRAY(SELECT ordinal FROM named WHERE ordinal IS NOT NULL))
), seat_rows AS MATERIALIZED (
    SELECT * FROM asked_rows
    UNION
    SELECT ordinal, zone, status, seat_hold_id, companion_of, category
    FROM seats
    WHERE event_id = $2 AND organization_id = $3 AND ordinal = ANY (ARRAY(SELECT unnest(companion_of) FROM asked_rows))
), overdue AS MATERIALIZED (
    SELECT hold_id, held_until
    FROM seat_holds
    WHERE event_id = $2 AND organization_id = $3 AND status = 'active' AND line = 0 AND held_until <= (SELECT now FROM clock)
    ORDER BY held_until, hold_id
    LIMIT $10::integer
), wanted AS MATERIALIZED (
    SELECT hold_id FROM unnest($4::uuid[]) AS t (hold_id)
    UNION
    SELECT seat_hold_id FROM seat_rows WHERE status = 'held' OR status = 'sold' AND category = 'wheelchair'
    UNION
    SELECT hold_id FROM overdue
    UNION
    SELECT hold_id
    FROM seat_holds
    WHERE event_id = $2 AND user_id = ANY ($7::uuid[]) AND line = 0
        AND (status = 'active' OR created_at > (SELECT now FROM clock) - make_interval(secs => $9::bigint / 1000.0))
    UNION
    SELECT hold_id
    FROM seat_holds
    WHERE event_id = $2 AND address = ANY ($8::text[]) AND address <> '' AND status = 'active' AND line = 0
)
SELECT json_build_object(
    'mode', (SELECT mode FROM control WHERE shard = $1),
    'epoch', (SELECT epoch FROM control WHERE shard = $1),
    'seq', (SELECT m.seq FROM control c JOIN shard_marks m ON m.shard = c.shard AND m.epoch = c.epoch WHERE c.shard = $1),
    'now_ms', (SELECT (extract(epoch FROM now) * 1000)::bigint FROM clock),
    'event', (
        SELECT json_build_array(config_version, state, opened_at IS NOT NULL, companion_percent)
        FROM events
        WHERE id = $2 AND organization_id = $3
    ),
    'zones', (
        SELECT json_agg(json_build_array(zone, capacity, seats, held, sold, blocked) ORDER BY zone)
        FROM zones
        WHERE event_id = $2 AND organization_id = $3 AND zone = ANY ($6::int[] || ARRAY(SELECT zone FROM named))
    ),
    'seats', (SELECT json_agg(json_build_array(ordinal, zone, status, seat_hold_id, companion_of, category = 'wheelchair'))
        FROM seat_rows),
    'holds', (
        SELECT json_agg(
            json_build_array(h.hold_id, h.user_id, h.status, (extract(epoch FROM h.held_until) * 1000)::bigint,
                (extract(epoch FROM h.created_at) * 1000)::bigint, h.ttl_ms, h.fingerprint, h.address, h.cart_token,
                coalesce(h.checkout_id, ''), h.extension_key, h.epoch, h.seq, l.lines, h.companions_declined)
            ORDER BY h.created_at, h.hold_id)
        FROM wanted w
        CROSS JOIN LATERAL (SELECT * FROM seat_holds WHERE hold_id = w.hold_id AND line = 0 OFFSET 0) h
        CROSS JOIN LATERAL (
            SELECT json_agg(json_build_array(zone, ordinal, quantity) ORDER BY line) AS lines
            FROM seat_holds
            WHERE hold_id = h.hold_id
        ) l
        WHERE h.event_id = $2 AND h.organization_id = $3
    ),
    'overdue', (SELECT json_agg(hold_id ORDER BY held_until, hold_id) FROM overdue)
)::text
