-- Inserts an event unless its id is taken; the row of the result says that it was inserted. Tells those who
-- remember that there was no such event.
-- $1 id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 name text: its name
-- $4 state text: its state
-- $5 shard integer: the shard it lives on
-- $6 config_version text: the version of the document
-- $7 document jsonb: the document, as JSON text
-- $8 sale_start timestamptz: when sales open, null for always
-- $9 sale_end timestamptz: when sales close, null for never
-- $10 channel text: the channel of changed events
WITH inserted AS (
    INSERT INTO events (id, organization_id, name, state, shard, config_version, document, sale_start, sale_end)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT id, pg_notify($10, id::text)
FROM inserted
