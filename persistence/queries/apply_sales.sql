-- Converts holds to tickets: of each log entry all or none. A hold that had expired is sold if its seats and units can be had
-- again. The rows of the result are the holds that stand in the way of their entry, with the refusal each meets.
-- $1 hold_ids uuid[]: the holds
-- $2 sales text[]: the sale of each
-- $3 sold_at timestamptz[]: when
-- $4 epochs bigint[]: the epoch of the log entry
-- $5 seqs bigint[]: the number of the log entry
-- $6 ip_addresses text[]: the caller's address
-- $7 user_agents text[]: the caller's name
-- $8 request_ids text[]: the request
-- $9 event_ids uuid[]: the event of each hold; a log entry is known by its event and its number, which another shard has too
-- $10 ticket_ids uuid[]: the tickets, one for each unit
-- $11 ticket_hold_ids uuid[]: the hold of each ticket
-- $12 ticket_zones int[]: its zone
-- $13 ticket_ordinals int[]: its seat, null for general admission
WITH given AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[],
            $9::uuid[])
        AS t (hold_id, sale, sold_at, epoch, seq, ip_address, user_agent, request_id, event_id)
), lines AS MATERIALIZED (
    SELECT g.*, h.line, h.organization_id, h.user_id, h.zone, h.ordinal, h.quantity, h.status, h.checkout_id
    FROM given g
    JOIN seat_holds h ON h.hold_id = g.hold_id AND h.event_id = g.event_id
), refused AS MATERIALIZED (
    SELECT g.event_id, g.seq, g.hold_id, 'hold_not_found' AS reason
    FROM given g
    WHERE g.hold_id NOT IN (SELECT hold_id FROM lines)
    UNION
    SELECT event_id, seq, hold_id, 'hold_released' FROM lines WHERE status = 'cancelled'
    UNION
    SELECT event_id, seq, hold_id, 'hold_sold' FROM lines WHERE status = 'converted' AND checkout_id IS DISTINCT FROM sale
    UNION
    SELECT l.event_id, l.seq, l.hold_id, 'seats_lost'
    FROM lines l
    JOIN seats s ON s.event_id = l.event_id AND s.ordinal = l.ordinal
    WHERE l.status IN ('active', 'expired')
        AND s.status <> 'available' AND (s.seat_hold_id IS DISTINCT FROM l.hold_id OR s.status = 'sold')
    UNION
    SELECT w.event_id, w.seq, w.hold_id, 'seats_lost'
    FROM (
        SELECT l.event_id, l.seq, l.hold_id,
            sum(l.quantity) OVER (PARTITION BY l.event_id, l.zone ORDER BY l.seq, l.hold_id, l.line ROWS UNBOUNDED PRECEDING)
                AS wanted,
            z.capacity - z.held - z.sold - CASE WHEN z.seats = 0 THEN z.blocked ELSE 0 END AS room
        FROM lines l
        JOIN zones z ON z.event_id = l.event_id AND z.zone = l.zone
        WHERE l.status = 'expired'
    ) w
    WHERE w.wanted > w.room
), accepted AS MATERIALIZED (
    SELECT *
    FROM lines
    WHERE status IN ('active', 'expired') AND (event_id, seq) NOT IN (SELECT event_id, seq FROM refused)
), converted AS (
    UPDATE seat_holds h
    SET status = 'converted', checkout_id = a.sale, release_reason = NULL, ended_at = a.sold_at, updated_at = a.sold_at,
        epoch = a.epoch, seq = a.seq, companions_declined = h.companions_declined AND a.status = 'active'
    FROM accepted a
    WHERE h.hold_id = a.hold_id AND h.line = a.line
), issued AS (
    INSERT INTO tickets (id, organization_id, event_id, zone, ordinal, hold_id, sale_id, user_id, created_at)
    SELECT t.id, a.organization_id, a.event_id, a.zone, a.ordinal, a.hold_id, a.sale, a.user_id, a.sold_at
    FROM unnest($10::uuid[], $11::uuid[], $12::int[], $13::int[]) AS t (id, hold_id, zone, ordinal)
    JOIN accepted a ON a.hold_id = t.hold_id AND a.zone = t.zone AND a.ordinal IS NOT DISTINCT FROM t.ordinal
    RETURNING id, hold_id, event_id, ordinal
), marked AS (
    UPDATE seats s
    SET status = 'sold', held_until = NULL, seat_hold_id = i.hold_id, ticket_id = i.id, version = version + 1
    FROM issued i
    WHERE s.event_id = i.event_id AND s.ordinal = i.ordinal
    RETURNING i.hold_id, s.seat_id
), counted AS (
    UPDATE zones z
    SET held = z.held - t.held_units, sold = z.sold + t.units
    FROM (
        SELECT event_id, zone, sum(quantity)::int AS units,
            coalesce(sum(quantity) FILTER (WHERE status = 'active'), 0)::int AS held_units
        FROM accepted
        GROUP BY event_id, zone
    ) t
    WHERE z.event_id = t.event_id AND z.zone = t.zone
), completed AS (
    INSERT INTO checkouts (id, organization_id, event_id, user_id, status, created_at, updated_at)
    SELECT DISTINCT ON (event_id, sale) sale, organization_id, event_id, user_id, 'completed', sold_at, sold_at
    FROM accepted
    ORDER BY event_id, sale, seq, hold_id
    ON CONFLICT (event_id, id) DO UPDATE SET status = 'completed', updated_at = excluded.updated_at
), seat_lists AS (
    SELECT jsonb_object_agg(hold_id, seat_ids) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(seat_id) AS seat_ids FROM marked GROUP BY hold_id
    ) lists
), ticket_lists AS (
    SELECT jsonb_object_agg(hold_id, ticket_ids) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(id) AS ticket_ids FROM issued GROUP BY hold_id
    ) lists
), quantity_lists AS (
    SELECT jsonb_object_agg(hold_id, quantities) AS by_hold
    FROM (
        SELECT hold_id, jsonb_agg(jsonb_build_object('zone', zone, 'quantity', quantity)) AS quantities
        FROM accepted
        WHERE ordinal IS NULL
        GROUP BY hold_id
    ) lists
), summary AS (
    SELECT a.*,
        coalesce((SELECT by_hold FROM seat_lists) -> a.hold_id::text, '[]') AS seat_ids,
        coalesce((SELECT by_hold FROM ticket_lists) -> a.hold_id::text, '[]') AS ticket_ids,
        coalesce((SELECT by_hold FROM quantity_lists) -> a.hold_id::text, '[]') AS quantities
    FROM accepted a
    WHERE a.line = 0
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
        request_id, created_at)
    SELECT organization_id, event_id, user_id, 'seat_sold', 'SeatHold', hold_id::text,
        jsonb_build_object('seat_ids', seat_ids, 'quantities', quantities, 'ticket_ids', ticket_ids, 'sale_id', sale,
            'previous_status', status, 'new_status', 'converted'),
        ip_address, user_agent, request_id, sold_at
    FROM summary
    ORDER BY seq
), announced AS (
    INSERT INTO outbox (organization_id, event_id, kind, payload)
    SELECT organization_id, event_id, 'SeatSold',
        jsonb_build_object('hold_id', hold_id, 'event_id', event_id, 'organization_id', organization_id, 'user_id', user_id,
            'seat_ids', seat_ids, 'quantities', quantities, 'ticket_ids', ticket_ids, 'sale_id', sale, 'timestamp', sold_at)
    FROM summary
    ORDER BY seq
)
SELECT DISTINCT ON (hold_id) hold_id, reason FROM refused ORDER BY hold_id, reason
