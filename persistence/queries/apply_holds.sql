-- Inserts new holds, marks their seats, counts their zones, and tells audit and outbox. A hold that collides is not
-- inserted at all: the rows of the result are those holds, each with the refusal it meets. A hold that is there already
-- is left alone; another one under an id that was used is a collision too.
-- $1 hold_ids uuid[]: the hold of each line
-- $2 lines smallint[]: the number of the line within its hold
-- $3 organization_ids uuid[]: its organisation
-- $4 event_ids uuid[]: its event
-- $5 user_ids uuid[]: its user
-- $6 zones int[]: its zone
-- $7 ordinals int[]: its seat, null for general admission
-- $8 quantities int[]: its units
-- $9 created_ms bigint[]: when it was made, ms since 1970
-- $10 ttls int[]: its first time to live, ms
-- $11 carts text[]: its cart token
-- $12 fingerprints text[]: the digest of its request
-- $13 addresses text[]: the digest of its client's address
-- $14 epochs bigint[]: the epoch of its log entry
-- $15 seqs bigint[]: the number of its log entry
-- $16 ip_addresses text[]: its client's address
-- $17 user_agents text[]: its client's name
-- $18 request_ids text[]: its request
-- $19 sources text[]: what it was made with
WITH given AS (
    SELECT *, to_timestamp(created_ms / 1000::float8) AS created_at,
        to_timestamp((created_ms + ttl_ms) / 1000::float8) AS held_until
    FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::uuid[], $5::uuid[], $6::int[], $7::int[], $8::int[], $9::bigint[],
            $10::int[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::text[], $17::text[], $18::text[],
            $19::text[])
        AS t (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, created_ms, ttl_ms, cart_token,
            fingerprint, address, epoch, seq, ip_address, user_agent, request_id, source)
), known AS MATERIALIZED (
    SELECT g.hold_id, (h.event_id, h.created_at) <> (g.event_id, g.created_at) AS reused
    FROM given g
    JOIN seat_holds h ON h.hold_id = g.hold_id AND h.line = g.line
    WHERE g.line = 0
), fresh AS MATERIALIZED (
    SELECT * FROM given WHERE hold_id NOT IN (SELECT hold_id FROM known)
), taken AS MATERIALIZED (
    SELECT hold_id, 'hold_id_reused' AS reason FROM known WHERE reused
    UNION
    SELECT f.hold_id, CASE s.status WHEN 'held' THEN 'seat_held_by_another_user' ELSE 'seat_not_available' END
    FROM fresh f
    JOIN seats s ON s.event_id = f.event_id AND s.ordinal = f.ordinal
    WHERE s.status <> 'available'
), refused AS MATERIALIZED (
    SELECT * FROM taken
    UNION
    SELECT w.hold_id, 'block_at_capacity'
    FROM (
        SELECT f.hold_id,
            sum(f.quantity) OVER (PARTITION BY f.event_id, f.zone ORDER BY f.seq, f.line ROWS UNBOUNDED PRECEDING) AS wanted,
            z.capacity - z.held - z.sold - CASE WHEN z.seats = 0 THEN z.blocked ELSE 0 END AS room
        FROM fresh f
        JOIN zones z ON z.event_id = f.event_id AND z.zone = f.zone
        WHERE f.hold_id NOT IN (SELECT hold_id FROM taken)
    ) w
    WHERE w.wanted > w.room
), inserted AS (
    INSERT INTO seat_holds (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, held_until, created_at,
        updated_at, ttl_ms, cart_token, fingerprint, address, epoch, seq, source)
    SELECT hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, held_until, created_at,
        created_at, ttl_ms, cart_token, fingerprint, address, epoch, seq, source
    FROM fresh
    WHERE hold_id NOT IN (SELECT hold_id FROM refused)
    RETURNING hold_id, event_id, zone, ordinal, quantity, held_until, created_at
), marked AS (
    UPDATE seats s
    SET status = 'held', held_until = i.held_until, locked_at = i.created_at, seat_hold_id = i.hold_id, version = version + 1
    FROM inserted i
    WHERE s.event_id = i.event_id AND s.ordinal = i.ordinal
    RETURNING s.seat_hold_id AS hold_id, s.seat_id
), counted AS (
    UPDATE zones z
    SET held = z.held + t.units
    FROM (SELECT event_id, zone, sum(quantity)::int AS units FROM inserted GROUP BY event_id, zone) t
    WHERE z.event_id = t.event_id AND z.zone = t.zone
), seat_lists AS (
    SELECT jsonb_object_agg(hold_id, seat_ids) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(seat_id) AS seat_ids FROM marked GROUP BY hold_id
    ) lists
), quantity_lists AS (
    SELECT jsonb_object_agg(hold_id, quantities) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(jsonb_build_object('zone', zone, 'quantity', quantity)) AS quantities
        FROM inserted
        WHERE ordinal IS NULL
        GROUP BY hold_id
    ) lists
), summary AS (
    SELECT f.hold_id, f.organization_id, f.event_id, f.user_id, f.held_until, f.created_at, f.cart_token, f.ip_address,
        f.user_agent, f.request_id, f.seq, f.source,
        coalesce((SELECT by_hold FROM seat_lists) -> f.hold_id::text, '[]') AS seat_ids,
        coalesce((SELECT by_hold FROM quantity_lists) -> f.hold_id::text, '[]') AS quantities
    FROM fresh f
    WHERE f.line = 0 AND f.hold_id NOT IN (SELECT hold_id FROM refused)
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
        request_id, created_at)
    SELECT organization_id, event_id, user_id, 'seat_reserved', 'SeatHold', hold_id::text,
        jsonb_build_object('seat_ids', seat_ids, 'quantities', quantities, 'status', 'active', 'held_until', held_until,
            'cart_token', cart_token, 'source', source),
        ip_address, user_agent, request_id, created_at
    FROM summary
    ORDER BY seq
), announced AS (
    INSERT INTO outbox (organization_id, event_id, kind, payload)
    SELECT organization_id, event_id, 'SeatReserved',
        jsonb_build_object('hold_id', hold_id, 'event_id', event_id, 'organization_id', organization_id, 'user_id', user_id,
            'seat_ids', seat_ids, 'quantities', quantities, 'held_until', held_until, 'timestamp', created_at)
    FROM summary
    ORDER BY seq
)
SELECT DISTINCT ON (hold_id) hold_id, reason FROM refused ORDER BY hold_id, reason DESC
