-- Reads the document of an organisation's event.
-- $1 id uuid: the event
-- $2 organization_id uuid: its organisation
SELECT document
FROM events
WHERE id = $1 AND organization_id = $2
