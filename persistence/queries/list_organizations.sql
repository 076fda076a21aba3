-- Lists the organisations.
SELECT id, name, created_at FROM organizations ORDER BY created_at, id
