-- Ends active holds: releases them, or expires those whose time is over by this database's clock too; frees their seats and
-- units, ends the checkout they end with, and tells audit and outbox. Holds of that checkout that have expired become released
-- ones. The rows of the result are the holds that ended.
-- $1 hold_ids uuid[]: the holds
-- $2 statuses text[]: what each becomes, 'cancelled' or 'expired'
-- $3 reasons text[]: why
-- $4 ended_at timestamptz[]: when
-- $5 epochs bigint[]: the epoch of the log entry
-- $6 seqs bigint[]: the number of the log entry
-- $7 ip_addresses text[]: the caller's address
-- $8 user_agents text[]: the caller's name
-- $9 request_ids text[]: the request
-- $10 event_ids uuid[]: the event of each hold
-- $11 checkouts text[]: the checkout that ends with the hold, or empty
-- $12 checkout_statuses text[]: what that becomes, 'failed' or 'cancelled'
-- $13 actors text[]: the user who released what belongs to another, or empty
-- $14 notes text[]: what that user noted
WITH given AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
        $9::text[], $10::uuid[], $11::text[], $12::text[], $13::text[], $14::text[])
        AS t (hold_id, status, reason, ended_at, epoch, seq, ip_address, user_agent, request_id, event_id, checkout,
            checkout_status, actor, notes)
), ended AS (
    UPDATE seat_holds h
    SET status = g.status, release_reason = g.reason, ended_at = g.ended_at, updated_at = g.ended_at, epoch = g.epoch,
        seq = g.seq
    FROM given g
    WHERE h.hold_id = g.hold_id AND h.event_id = g.event_id AND h.status = 'active'
        AND (g.status <> 'expired' OR h.held_until <= clock_timestamp())
    RETURNING h.hold_id, h.line, h.organization_id, h.event_id, h.user_id, h.zone, h.ordinal, h.quantity, h.created_at
), given_up AS (
    UPDATE seat_holds h
    SET status = g.status, release_reason = g.reason, ended_at = g.ended_at, updated_at = g.ended_at, epoch = g.epoch,
        seq = g.seq
    FROM given g
    WHERE h.hold_id = g.hold_id AND h.event_id = g.event_id AND h.status = 'expired' AND h.checkout_id = g.checkout
        AND (h.epoch, h.seq) < (g.epoch, g.seq)
), closed AS (
    UPDATE checkouts c
    SET status = g.checkout_status, updated_at = g.ended_at
    FROM given g
    WHERE c.event_id = g.event_id AND c.id = g.checkout AND c.status = 'open'
), freed AS (
    UPDATE seats s
    SET status = 'available', held_until = NULL, locked_at = NULL, seat_hold_id = NULL, version = version + 1
    FROM ended e
    WHERE s.event_id = e.event_id AND s.ordinal = e.ordinal AND s.seat_hold_id = e.hold_id AND s.status = 'held'
    RETURNING e.hold_id, s.seat_id
), counted AS (
    UPDATE zones z
    SET held = z.held - t.units
    FROM (SELECT event_id, zone, sum(quantity)::int AS units FROM ended GROUP BY event_id, zone) t
    WHERE z.event_id = t.event_id AND z.zone = t.zone
), seat_lists AS (
    SELECT jsonb_object_agg(hold_id, seat_ids) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(seat_id) AS seat_ids FROM freed GROUP BY hold_id
    ) lists
), quantity_lists AS (
    SELECT jsonb_object_agg(hold_id, quantities) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(jsonb_build_object('zone', zone, 'quantity', quantity)) AS quantities
        FROM ended
        WHERE ordinal IS NULL
        GROUP BY hold_id
    ) lists
), summary AS (
    SELECT g.*, e.organization_id, e.user_id,
        extract(epoch FROM g.ended_at - e.created_at)::int AS held_seconds,
        coalesce((SELECT by_hold FROM seat_lists) -> g.hold_id::text, '[]') AS seat_ids,
        coalesce((SELECT by_hold FROM quantity_lists) -> g.hold_id::text, '[]') AS quantities
    FROM given g
    JOIN ended e ON e.hold_id = g.hold_id AND e.line = 0
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
        request_id, created_at)
    SELECT organization_id, event_id, user_id,
        CASE status WHEN 'expired' THEN 'seat_hold_expired' ELSE 'seat_released' END, 'SeatHold', hold_id::text,
        jsonb_build_object('seat_ids', seat_ids, 'quantities', quantities, 'previous_status', 'active', 'new_status', status,
            'reason', reason, 'held_duration_seconds', held_seconds)
            || jsonb_strip_nulls(jsonb_build_object('checkout_id', nullif(checkout, ''), 'released_by', nullif(actor, ''),
                'notes', nullif(notes, ''))),
        ip_address, user_agent, request_id, ended_at
    FROM summary
    ORDER BY seq
), announced AS (
    INSERT INTO outbox (organization_id, event_id, kind, payload)
    SELECT organization_id, event_id, 'SeatReleased',
        jsonb_build_object('hold_id', hold_id, 'event_id', event_id, 'organization_id', organization_id, 'user_id', user_id,
            'seat_ids', seat_ids, 'quantities', quantities, 'reason', reason, 'held_duration_seconds', held_seconds,
            'timestamp', ended_at)
    FROM summary
    ORDER BY seq
)
SELECT DISTINCT hold_id FROM ended
