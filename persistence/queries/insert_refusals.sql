-- Writes tallies of refused requests to the audit log.
-- $1 organization_ids uuid[]: the organisation of each
-- $2 event_ids uuid[]: its event
-- $3 user_ids uuid[]: its user, null for several
-- $4 changes text[]: the outcome, how often, and the first few, JSON
-- $5 ip_addresses text[]: the client's address, empty for several
-- $6 user_agents text[]: the client's name, empty for several
-- $7 request_ids text[]: the request, empty for several
-- $8 created_at timestamptz[]: when the first was refused
INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
    request_id, created_at)
SELECT organization_id, event_id, user_id, 'seat_reserve_failed', 'Event', event_id::text, changes::jsonb, ip_address, user_agent,
    request_id, created_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[])
    AS t (organization_id, event_id, user_id, changes, ip_address, user_agent, request_id, created_at)
