-- Tells the audit of what was done to an event where no entry of the log does.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 action text: what the audit calls it
-- $4 changes jsonb: what has changed, as JSON text
-- $5 ip_address text: the caller's address
-- $6 user_agent text: the caller's name
-- $7 request_id text: the request
-- $8 actor text: who asked for it, empty for nobody in particular
-- $9 notes text: why, empty for no reason given
INSERT INTO audit_log (organization_id, event_id, action, entity_type, entity_id, changes, ip_address, user_agent, request_id,
    created_at)
VALUES ($2, $1::uuid, $3, 'Event', $1::uuid::text,
    $4::jsonb || jsonb_strip_nulls(jsonb_build_object('changed_by', nullif($8::text, ''), 'notes', nullif($9::text, ''))),
    $5, $6, $7, now())
