-- Places holds for which nothing stands in the way: marks their seats, counts their zones, inserts them, and tells audit and
-- outbox. The result says whether all seats and zones had room. If not, or if a constraint is violated, some hold collides: then
-- nothing of this may be kept, and apply_holds sorts out which. There is no join but by primary key, so that one plan serves any
-- number of holds.
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
WITH given AS MATERIALIZED (
    SELECT *, to_timestamp(created_ms / 1000::float8) AS created_at,
        to_timestamp((created_ms + ttl_ms) / 1000::float8) AS held_until
    FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::uuid[], $5::uuid[], $6::int[], $7::int[], $8::int[], $9::bigint[],
            $10::int[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::text[], $17::text[], $18::text[],
            $19::text[])
        AS t (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, created_ms, ttl_ms, cart_token,
            fingerprint, address, epoch, seq, ip_address, user_agent, request_id, source)
), marked AS (
    UPDATE seats s
    SET status = 'held', held_until = g.held_until, locked_at = g.created_at, seat_hold_id = g.hold_id, version = s.version + 1
    FROM given g
    WHERE s.event_id = g.event_id AND s.ordinal = g.ordinal AND s.status = 'available'
    RETURNING g.hold_id, g.organization_id, g.event_id, g.user_id, g.held_until, g.created_at, g.cart_token, g.ip_address,
        g.user_agent, g.request_id, g.seq, g.source, g.line, s.seat_id
), wanted AS MATERIALIZED (
    SELECT event_id, zone, sum(quantity)::int AS units FROM given GROUP BY event_id, zone
), counted AS (
    UPDATE zones z
    SET held = z.held + w.units
    FROM wanted w
    WHERE z.event_id = w.event_id AND z.zone = w.zone
        AND z.capacity - z.held - z.sold - CASE WHEN z.seats = 0 THEN z.blocked ELSE 0 END >= w.units
    RETURNING z.zone
), inserted AS (
    INSERT INTO seat_holds (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, held_until, created_at,
        updated_at, ttl_ms, cart_token, fingerprint, address, epoch, seq, source)
    SELECT hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, held_until, created_at,
        created_at, ttl_ms, cart_token, fingerprint, address, epoch, seq, source
    FROM given
), units AS (
    SELECT *, NULL::jsonb AS places FROM marked
    UNION ALL
    SELECT hold_id, organization_id, event_id, user_id, held_until, created_at, cart_token, ip_address, user_agent, request_id,
        seq, source, line, NULL, jsonb_build_object('zone', zone, 'quantity', quantity)
    FROM given
    WHERE ordinal IS NULL
), summary AS MATERIALIZED (
    SELECT hold_id, organization_id, event_id, user_id, held_until, created_at, cart_token, ip_address, user_agent, request_id,
        seq, source,
        coalesce(jsonb_agg(seat_id ORDER BY line) FILTER (WHERE seat_id IS NOT NULL), '[]') AS seat_ids,
        coalesce(jsonb_agg(places ORDER BY line) FILTER (WHERE places IS NOT NULL), '[]') AS quantities
    FROM units
    GROUP BY hold_id, organization_id, event_id, user_id, held_until, created_at, cart_token, ip_address, user_agent, request_id,
        seq, source
    ORDER BY seq
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
        request_id, created_at)
    SELECT organization_id, event_id, user_id, 'seat_reserved', 'SeatHold', hold_id::text,
        jsonb_build_object('seat_ids', seat_ids, 'quantities', quantities, 'status', 'active', 'held_until', held_until,
            'cart_token', cart_token, 'source', source),
        ip_address, user_agent, request_id, created_at
    FROM summary
), announced AS (
    INSERT INTO outbox (organization_id, event_id, kind, payload)
    SELECT organization_id, event_id, 'SeatReserved',
        jsonb_build_object('hold_id', hold_id, 'event_id', event_id, 'organization_id', organization_id, 'user_id', user_id,
            'seat_ids', seat_ids, 'quantities', quantities, 'held_until', held_until, 'timestamp', created_at)
    FROM summary
)
SELECT (SELECT count(*) FROM marked) = (SELECT count(ordinal) FROM given)
    AND (SELECT count(*) FROM counted) = (SELECT count(*) FROM wanted) AS had_room
