-- Reads the newest version of a layout. Not filtered by organisation: an id that another one uses is taken all the same.
-- $1 id uuid: the layout
-- $2 document jsonb: the document to compare with, as JSON text
SELECT organization_id, version, document = $2 AS same_document
FROM layouts
WHERE id = $1
ORDER BY version DESC
LIMIT 1
