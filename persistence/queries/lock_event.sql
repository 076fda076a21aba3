-- Reads an event and keeps others from changing it until the transaction ends. Not filtered by organisation: an id that
-- another one uses is taken all the same.
-- $1 id uuid: the event
-- $2 document jsonb: the document to compare with, as JSON text
SELECT organization_id, shard, config_version, document = $2 AS same_document, document
FROM events
WHERE id = $1
FOR UPDATE
