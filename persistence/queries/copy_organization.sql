-- Takes over an organisation from another database.
-- $1 id uuid: the organisation
-- $2 name text: its name
-- $3 created_at timestamptz: when it was made
INSERT INTO organizations (id, name, created_at) VALUES ($1, $2, $3)
ON CONFLICT (id) DO NOTHING
