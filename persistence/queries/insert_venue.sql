-- Inserts a venue unless its id is taken; the row of the result says that it was inserted.
-- $1 id uuid: the venue
-- $2 organization_id uuid: its organisation
-- $3 name text: its name
-- $4 address text: where it is
INSERT INTO venues (id, organization_id, name, address)
VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO NOTHING
RETURNING id
