-- Reads a version of an organisation's layout, or the newest.
-- $1 id uuid: the layout
-- $2 organization_id uuid: its organisation
-- $3 version integer: the version, null for the newest
SELECT version, document
FROM layouts
WHERE id = $1 AND organization_id = $2 AND ($3::integer IS NULL OR version = $3)
ORDER BY version DESC
LIMIT 1
