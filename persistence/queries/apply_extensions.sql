-- Moves the end of active holds, binds them to a checkout if one is named, and tells the audit. The rows of the result are
-- the holds that were no longer active. An extension that is there already, or that a later entry followed, is left alone.
-- $1 hold_ids uuid[]: the holds
-- $2 held_until timestamptz[]: their new end
-- $3 checkouts text[]: the checkout that takes them, or empty
-- $4 keys text[]: the key of the request
-- $5 extended_at timestamptz[]: when
-- $6 epochs bigint[]: the epoch of the log entry
-- $7 seqs bigint[]: the number of the log entry
-- $8 ip_addresses text[]: the caller's address
-- $9 user_agents text[]: the caller's name
-- $10 request_ids text[]: the request
-- $11 event_ids uuid[]: the event of each hold
WITH given AS (
    SELECT *
    FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::text[],
            $9::text[], $10::text[], $11::uuid[])
        AS t (hold_id, held_until, checkout, key, extended_at, epoch, seq, ip_address, user_agent, request_id, event_id)
), extended AS (
    UPDATE seat_holds h
    SET held_until = g.held_until, checkout_id = coalesce(nullif(g.checkout, ''), h.checkout_id), extension_key = g.key,
        updated_at = g.extended_at, epoch = g.epoch, seq = g.seq
    FROM given g
    WHERE h.hold_id = g.hold_id AND h.event_id = g.event_id AND h.status = 'active' AND (h.epoch, h.seq) < (g.epoch, g.seq)
    RETURNING h.hold_id, h.line, h.organization_id, h.event_id, h.user_id, h.ordinal, h.held_until
), marked AS (
    UPDATE seats s
    SET held_until = e.held_until, version = version + 1
    FROM extended e
    WHERE s.event_id = e.event_id AND s.ordinal = e.ordinal AND s.seat_hold_id = e.hold_id
), opened AS (
    INSERT INTO checkouts (id, organization_id, event_id, user_id, created_at, updated_at)
    SELECT DISTINCT ON (e.event_id, g.checkout) g.checkout, e.organization_id, e.event_id, e.user_id, g.extended_at,
        g.extended_at
    FROM given g
    JOIN extended e ON e.hold_id = g.hold_id AND e.line = 0
    WHERE g.checkout <> ''
    ORDER BY e.event_id, g.checkout, g.seq, e.hold_id
    ON CONFLICT (event_id, id) DO NOTHING
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
        request_id, created_at)
    SELECT e.organization_id, e.event_id, e.user_id, 'seat_hold_extended', 'SeatHold', e.hold_id::text,
        jsonb_build_object('held_until', e.held_until, 'checkout_id', g.checkout),
        g.ip_address, g.user_agent, g.request_id, g.extended_at
    FROM given g
    JOIN extended e ON e.hold_id = g.hold_id AND e.line = 0
    ORDER BY g.seq
)
SELECT g.hold_id, 'hold_expired' AS reason
FROM given g
LEFT JOIN seat_holds h ON h.hold_id = g.hold_id AND h.event_id = g.event_id AND h.line = 0
WHERE h.hold_id IS NULL OR h.status <> 'active' AND (h.epoch, h.seq) < (g.epoch, g.seq)
