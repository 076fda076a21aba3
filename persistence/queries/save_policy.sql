-- Stores the seating policy of an organisation.
-- $1 organization_id uuid: the organisation
-- $2 document jsonb: the policy, as JSON text
INSERT INTO seating_policies (organization_id, document)
VALUES ($1, $2)
ON CONFLICT (organization_id) DO UPDATE SET document = excluded.document, updated_at = now()
