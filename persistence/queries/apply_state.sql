-- Takes over an event's state, window, version and capacities from the log, and tells the audit. What the audit was told of a
-- log entry before is not done again.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 action text: what the audit calls it
-- $4 version text: the configuration version, null when the event closed
-- $5 state text: the state
-- $6 sale_start timestamptz: when sales open, null for always
-- $7 sale_end timestamptz: when sales close, null for never
-- $8 zones int[]: the zones whose capacity changed
-- $9 capacities int[]: their capacity
-- $10 changed_at timestamptz: when
-- $11 ip_address text: the caller's address
-- $12 user_agent text: the caller's name
-- $13 request_id text: the request
-- $14 entry text: the log entry
-- $15 actor text: who asked for it, empty for nobody in particular
-- $16 notes text: why, empty for no reason given
WITH told AS (
    SELECT FROM audit_log WHERE organization_id = $2 AND created_at = $10 AND event_id = $1 AND changes ->> 'entry' = $14
), changed AS (
    UPDATE events
    SET config_version = coalesce($4, config_version), state = coalesce($5, state), updated_at = $10,
        sale_start = CASE WHEN $4 IS NULL THEN sale_start ELSE $6 END,
        sale_end = CASE WHEN $4 IS NULL THEN sale_end ELSE $7 END,
        opened_at = CASE $3 WHEN 'event_opened' THEN $10 WHEN 'event_closed' THEN NULL ELSE opened_at END
    WHERE id = $1 AND organization_id = $2 AND NOT EXISTS (SELECT FROM told)
), resized AS (
    UPDATE zones z
    SET capacity = t.capacity
    FROM unnest($8::int[], $9::int[]) AS t (zone, capacity)
    WHERE z.event_id = $1 AND z.organization_id = $2 AND z.zone = t.zone AND NOT EXISTS (SELECT FROM told)
)
INSERT INTO audit_log (organization_id, event_id, action, entity_type, entity_id, changes, ip_address, user_agent, request_id,
    created_at)
SELECT $2, $1, $3, 'Event', $1::text,
    jsonb_build_object('version', $4::text, 'state', $5::text, 'zones', to_jsonb($8::int[]), 'capacities', to_jsonb($9::int[]),
        'entry', $14::text)
        || jsonb_strip_nulls(jsonb_build_object('changed_by', nullif($15::text, ''), 'notes', nullif($16::text, ''))),
    $11, $12, $13, $10
WHERE NOT EXISTS (SELECT FROM told)
