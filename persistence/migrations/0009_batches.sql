-- Lets a batch of holds be one call that commits by itself: each call saved is a round trip that every hold of the batch waits for.
-- The queries of the same names say what the arguments are.

-- Returns how many marks moved.
CREATE FUNCTION advance_marks(integer[], bigint[], bigint[], bigint[], bigint[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    moved integer;
BEGIN
    WITH locked AS (
        -- Always in the same order, or two persisters with several shards each could wait for one another.
        SELECT shard, epoch FROM shard_marks WHERE shard = ANY ($1) ORDER BY shard, epoch FOR UPDATE
    )
    UPDATE shard_marks m
    SET seq = t.to_seq, at_ms = greatest(m.at_ms, t.at_ms), updated_at = now()
    FROM unnest($1, $2, $3, $4, $5) AS t (shard, epoch, from_seq, to_seq, at_ms)
    JOIN locked l ON l.shard = t.shard AND l.epoch = t.epoch
    JOIN control c ON c.shard = t.shard AND c.epoch = t.epoch AND c.mode = 'redis'
    WHERE m.shard = t.shard AND m.epoch = t.epoch AND m.seq = t.from_seq;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END
$$;

-- Planned once for a session, for good: by indexes and nested loops alone, which costs the same for every row whatever the size of
-- the tables was when the plan was made. There is no join but by primary key.
CREATE FUNCTION place_holds(uuid[], smallint[], uuid[], uuid[], uuid[], integer[], integer[], integer[], bigint[], integer[], text[], text[],
    text[], bigint[], bigint[], text[], text[], text[], text[]) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    AS $$
DECLARE
    had_room boolean;
BEGIN
    WITH given AS MATERIALIZED (
        SELECT *, to_timestamp(created_ms / 1000::float8) AS created_at,
            to_timestamp((created_ms + ttl_ms) / 1000::float8) AS held_until
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                $13, $14, $15, $16, $17, $18, $19)
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
        AND (SELECT count(*) FROM counted) = (SELECT count(*) FROM wanted)
        INTO STRICT had_room;
    RETURN had_room;
END
$$;

-- The fence, the marks, the holds and the notification: all that the transaction of a batch of holds does, whole or not at all. Each
-- statement sees what was committed before it began, so what the fence guards is read after the fence is taken.
CREATE FUNCTION persist_holds(integer, integer[], bigint[], bigint[], bigint[], bigint[], text, text, text,
    uuid[], smallint[], uuid[], uuid[], uuid[], integer[], integer[], integer[], bigint[], integer[], text[], text[],
    text[], bigint[], bigint[], text[], text[], text[], text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared($1, shard) FROM unnest($2) AS t (shard);
    IF advance_marks($2, $3, $4, $5, $6) <> cardinality($2) THEN
        RAISE EXCEPTION 'a mark has moved, or its shard is served otherwise' USING ERRCODE = 'HF001';
    END IF;
    IF NOT place_holds($10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
        $22, $23, $24, $25, $26, $27, $28) THEN
        RAISE EXCEPTION 'a seat or a zone of a hold has no room' USING ERRCODE = 'HF002';
    END IF;
    PERFORM pg_notify($7, $8), pg_notify($9, '');
END
$$;
