-- Blocks or unblocks seats and general-admission places of an event, and tells audit and outbox. What the audit was told of a
-- log entry before is not done again. The rows of the result are the holds whose seats cannot be blocked, because they have
-- them here, and why; the rest is blocked all the same, as it is in Redis until the whole block is given back there.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 ordinals int[]: the seats
-- $4 blocks boolean: whether they are blocked, or unblocked
-- $5 zones int[]: the zones of general-admission places
-- $6 quantities int[]: how many places of each
-- $7 changed_at timestamptz: when
-- $8 ip_address text: the caller's address
-- $9 user_agent text: the caller's name
-- $10 request_id text: the request
-- $11 entry text: the log entry
-- $12 actor text: who asked for it, empty for nobody in particular
-- $13 notes text: why, empty for no reason given
WITH told AS (
    SELECT FROM audit_log WHERE organization_id = $2 AND created_at = $7 AND event_id = $1 AND changes ->> 'entry' = $11
), changed AS (
    UPDATE seats
    SET status = CASE WHEN $4 THEN 'blocked' ELSE 'available' END, version = version + 1
    WHERE event_id = $1 AND organization_id = $2 AND ordinal = ANY ($3::int[])
        AND status = CASE WHEN $4 THEN 'available' ELSE 'blocked' END AND NOT EXISTS (SELECT FROM told)
    RETURNING zone, seat_id
), refused AS (
    SELECT seat_id, seat_hold_id AS hold_id,
        CASE status WHEN 'held' THEN 'seat_held_by_another_user' ELSE 'seat_not_available' END AS reason
    FROM seats
    WHERE event_id = $1 AND organization_id = $2 AND ordinal = ANY ($3::int[]) AND $4
        AND status IN ('held', 'sold') AND NOT EXISTS (SELECT FROM told)
), units AS (
    SELECT zone, count(*)::int AS units FROM changed GROUP BY zone
    UNION ALL
    SELECT zone, quantity FROM unnest($5::int[], $6::int[]) AS t (zone, quantity)
), counted AS (
    UPDATE zones z
    SET blocked = z.blocked + CASE WHEN $4 THEN u.units ELSE -u.units END
    FROM units u
    WHERE z.event_id = $1 AND z.zone = u.zone AND NOT EXISTS (SELECT FROM told)
), lists AS (
    SELECT coalesce((SELECT jsonb_agg(seat_id) FROM changed), '[]') AS seat_ids,
        (SELECT jsonb_build_object('refused_seat_ids', jsonb_agg(seat_id)) FROM refused HAVING count(*) > 0) AS refused,
        (
            SELECT coalesce(jsonb_agg(jsonb_build_object('zone', zone, 'quantity', quantity)), '[]')
            FROM unnest($5::int[], $6::int[]) AS t (zone, quantity)
        ) AS quantities
), announced AS (
    INSERT INTO outbox (organization_id, event_id, kind, payload)
    SELECT $2, $1, CASE WHEN $4 THEN 'SeatsBlocked' ELSE 'SeatsUnblocked' END,
        jsonb_build_object('event_id', $1, 'organization_id', $2, 'seat_ids', seat_ids, 'quantities', quantities,
            'entry', $11::text, 'timestamp', $7)
    FROM lists
    WHERE NOT EXISTS (SELECT FROM told) AND (seat_ids <> '[]' OR quantities <> '[]')
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, action, entity_type, entity_id, changes, ip_address, user_agent, request_id,
        created_at)
    SELECT $2, $1, CASE WHEN $4 THEN 'seats_blocked' ELSE 'seats_unblocked' END, 'Event', $1::text,
        jsonb_build_object('seat_ids', seat_ids, 'zones', to_jsonb($5::int[]), 'quantities', to_jsonb($6::int[]),
            'entry', $11::text)
            || jsonb_strip_nulls(jsonb_build_object('changed_by', nullif($12::text, ''), 'notes', nullif($13::text, '')))
            || coalesce(refused, '{}'),
        $8, $9, $10, $7
    FROM lists
    WHERE NOT EXISTS (SELECT FROM told)
)
SELECT hold_id, min(reason) AS reason FROM refused GROUP BY hold_id
