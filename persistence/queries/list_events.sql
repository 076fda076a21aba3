-- Lists the events of one organisation, or of all, oldest first; or one of them.
-- $1 organization_id uuid: the organisation, null for all
-- $2 event_id uuid: the event, null for all
SELECT organization_id, id AS event_id, name, state, config_version, shard, sale_start, sale_end
FROM events
WHERE ($1::uuid IS NULL OR organization_id = $1) AND ($2::uuid IS NULL OR id = $2)
ORDER BY created_at, id
