-- Writes to the audit log that an event was moved to another version of its layout.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
-- $3 changes jsonb: from which version to which, and what became of the seats, as JSON text
-- $4 user_agent text: who did it
INSERT INTO audit_log (organization_id, event_id, action, entity_type, entity_id, changes, user_agent, created_at)
VALUES ($1, $2, 'event_layout_moved', 'Event', $2::uuid::text, $3, $4, now())
