-- A moment before now, by this database's clock.
-- $1 seconds double precision: how long before
SELECT clock_timestamp() - make_interval(secs => $1::double precision)
