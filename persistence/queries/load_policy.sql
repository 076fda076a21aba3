-- Reads the seating policy of an organisation.
-- $1 organization_id uuid: the organisation
SELECT document
FROM seating_policies
WHERE organization_id = $1
