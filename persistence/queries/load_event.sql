-- Reads the document of an organisation's event, and the version it was saved as.
-- $1 id uuid: the event
-- $2 organization_id uuid: its organisation
SELECT document, config_version
FROM events
WHERE id = $1 AND organization_id = $2
