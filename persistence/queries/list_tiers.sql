-- Reads of which tier each of some users is a member, if of any.
-- $1 organization_id uuid: the organisation
-- $2 user_ids uuid[]: the users
SELECT user_id, tier
FROM memberships
WHERE organization_id = $1 AND user_id = ANY ($2::uuid[])
