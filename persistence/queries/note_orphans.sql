-- Tells the audit which seats holds have left alone. What it was told of a hold before it is not told again.
-- $1 hold_ids uuid[]: the hold, once for each seat
-- $2 organization_ids uuid[]: its organisation
-- $3 event_ids uuid[]: its event
-- $4 user_ids uuid[]: its user
-- $5 ordinals int[]: the seat
-- $6 moments timestamptz[]: when the hold was made
-- $7 ip_addresses text[]: its client's address
-- $8 user_agents text[]: its client's name
-- $9 request_ids text[]: its request
INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
    request_id, created_at)
SELECT g.organization_id, g.event_id, g.user_id, 'orphans_left', 'SeatHold', g.hold_id::text,
    jsonb_build_object('orphans_created', count(*), 'seat_ids', jsonb_agg(s.seat_id ORDER BY s.ordinal)),
    g.ip_address, g.user_agent, g.request_id, g.created_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::int[], $6::timestamptz[], $7::text[], $8::text[], $9::text[])
    WITH ORDINALITY AS g (hold_id, organization_id, event_id, user_id, ordinal, created_at, ip_address, user_agent, request_id,
        place)
JOIN seats s ON s.event_id = g.event_id AND s.ordinal = g.ordinal AND s.organization_id = g.organization_id
WHERE NOT EXISTS (
    SELECT FROM audit_log a
    WHERE a.organization_id = g.organization_id AND a.created_at = g.created_at AND a.action = 'orphans_left'
        AND a.entity_id = g.hold_id::text
)
GROUP BY g.hold_id, g.organization_id, g.event_id, g.user_id, g.ip_address, g.user_agent, g.request_id, g.created_at
ORDER BY min(g.place)
