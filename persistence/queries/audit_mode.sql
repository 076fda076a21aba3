-- Tells the audit who has asked for a mode of shards, and why. What came of it is in the changes of each shard.
-- $1 organization_id uuid: the organisation of who asked
-- $2 user_id uuid: who asked
-- $3 mode text: the mode asked for
-- $4 shards int[]: the shards
-- $5 reason text: why
-- $6 ip_address text: the caller's address
-- $7 user_agent text: the caller's name
-- $8 request_id text: the request
INSERT INTO audit_log (organization_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent, request_id,
    created_at)
VALUES ($1, $2, 'mode_changed', 'Shards', array_to_string($4::int[], ','),
    jsonb_build_object('mode', $3::text, 'shards', to_jsonb($4::int[]), 'reason', $5::text), $6, $7, $8, now())
