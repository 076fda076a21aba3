-- Reads from which version of a layout an organisation's event is made, and how.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
SELECT plan::text AS plan
FROM event_layouts
WHERE event_id = $1 AND organization_id = $2
