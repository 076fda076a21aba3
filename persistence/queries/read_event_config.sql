-- Reads an event's configuration as Redis has it, and this database's clock, times in ms since 1970.
-- $1 id uuid: the event
SELECT organization_id, config_version, state,
    coalesce((extract(epoch FROM sale_start) * 1000)::bigint, 0) AS opens_ms,
    coalesce((extract(epoch FROM sale_end) * 1000)::bigint, 0) AS closes_ms,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
FROM events
WHERE id = $1
