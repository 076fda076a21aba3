-- Lets one caller at a time add a version to a layout, until the transaction ends.
-- $1 class integer: the class of these locks
-- $2 id uuid: the layout
SELECT pg_advisory_xact_lock($1::integer, hashtext($2::uuid::text))
