-- Makes the table that says which migrations a database has. It cannot be a migration itself.
CREATE TABLE IF NOT EXISTS schema_migrations (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    digest      text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
)
