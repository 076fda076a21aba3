-- Makes the rest of the transaction see the rows of one organisation only.
-- $1 organization_id text: the organisation
SELECT set_config('role', 'holdfast_tenant', true), set_config('holdfast.organization_id', $1::text, true)
