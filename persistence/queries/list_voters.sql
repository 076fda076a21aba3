-- Lists the processes that are alive.
-- $1 alive_s double precision: how long ago a live process has been seen at most, seconds
SELECT kind, name, seen_at, reaches_redis, shards, reasons
FROM voters
WHERE seen_at > clock_timestamp() - make_interval(secs => $1::double precision)
ORDER BY kind, name
