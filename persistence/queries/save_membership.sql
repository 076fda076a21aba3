-- Says of which tier a user is a member.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: the user
-- $3 tier text: the tier
INSERT INTO memberships (organization_id, user_id, tier)
VALUES ($1, $2, $3)
ON CONFLICT (organization_id, user_id) DO UPDATE SET tier = excluded.tier, updated_at = now()
