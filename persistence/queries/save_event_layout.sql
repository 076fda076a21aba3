-- Notes from which version of a layout an event is made, and how.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 layout_id uuid: the layout
-- $4 layout_version integer: its version
-- $5 plan jsonb: what the event wants otherwise, as JSON text
INSERT INTO event_layouts (event_id, organization_id, layout_id, layout_version, plan)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (event_id) DO UPDATE
SET layout_id = excluded.layout_id, layout_version = excluded.layout_version, plan = excluded.plan, updated_at = now()
WHERE event_layouts.organization_id = excluded.organization_id
