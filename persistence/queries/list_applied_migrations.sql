-- Lists the migrations that this database has.
SELECT number, name, digest
FROM schema_migrations
ORDER BY number
