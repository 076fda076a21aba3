-- Changes the version of an event, whose document stays as it is, unless it has that version already. Tells those who
-- keep events in memory.
-- $1 id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 config_version text: the version of the document
-- $4 channel text: the channel of changed events
WITH changed AS (
    UPDATE events
    SET config_version = $3, updated_at = now()
    WHERE id = $1 AND organization_id = $2 AND config_version <> $3
    RETURNING id
)
SELECT id, pg_notify($4, id::text)
FROM changed
