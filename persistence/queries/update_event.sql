-- Replaces what may change of an event while its seats stay, and tells those who keep events in memory.
-- $1 id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 name text: its name
-- $4 state text: its state
-- $5 config_version text: the version of the document
-- $6 document jsonb: the document, as JSON text
-- $7 sale_start timestamptz: when sales open, null for always
-- $8 sale_end timestamptz: when sales close, null for never
-- $9 channel text: the channel of changed events
WITH changed AS (
    UPDATE events
    SET name = $3, state = $4, config_version = $5, document = $6, sale_start = $7, sale_end = $8, updated_at = now()
    WHERE id = $1 AND organization_id = $2
    RETURNING id
)
SELECT pg_notify($9, id::text)
FROM changed
