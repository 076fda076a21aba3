-- Lists the venues of an organisation, or one of them, by name.
-- $1 organization_id uuid: the organisation
-- $2 id uuid: the venue, null for all
SELECT id AS venue_id, name, address
FROM venues
WHERE organization_id = $1 AND ($2::uuid IS NULL OR id = $2)
ORDER BY name, id
