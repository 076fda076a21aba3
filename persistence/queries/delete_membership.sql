-- Ends a user's membership; the row of the result says that there was one.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: the user
DELETE FROM memberships
WHERE organization_id = $1 AND user_id = $2
RETURNING user_id
