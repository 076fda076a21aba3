-- Makes sure that an organisation exists.
-- $1 id uuid: the organisation
INSERT INTO organizations (id)
VALUES ($1)
ON CONFLICT (id) DO NOTHING
