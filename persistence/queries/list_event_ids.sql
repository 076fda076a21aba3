-- Lists the ids of an organisation's events.
-- $1 organization_id uuid: the organisation
SELECT id
FROM events
WHERE organization_id = $1
