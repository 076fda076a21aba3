-- Reads, at one moment, who serves a shard and one of its events as it is in service: configuration, counters and, if wanted,
-- the map in the form of Redis: a letter for each seat, and a separator wherever an ordinal is none. Times are in ms since
-- 1970.
-- $1 shard int: the shard
-- $2 event_id uuid: the event
-- $3 organization_id uuid: its organisation
-- $4 want_map boolean: whether the map is wanted
WITH kept AS MATERIALIZED (
    SELECT ordinal FROM kept_seats($2) WHERE $4
)
SELECT c.mode, c.epoch, coalesce(m.seq, 0) AS seq, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
    e.config_version AS version, e.state,
    coalesce((extract(epoch FROM e.sale_start) * 1000)::bigint, 0) AS opens_ms,
    coalesce((extract(epoch FROM e.sale_end) * 1000)::bigint, 0) AS closes_ms,
    ARRAY(SELECT ARRAY[zone, capacity, seats, held, sold, blocked] FROM zones WHERE event_id = e.id ORDER BY zone) AS zones,
    CASE WHEN $4 THEN (
        SELECT string_agg(letter || CASE WHEN next = ordinal + 1 THEN '' ELSE '|' END, '' ORDER BY ordinal)
        FROM (
            SELECT ordinal, lead(ordinal) OVER (ORDER BY ordinal) AS next,
                CASE status WHEN 'held' THEN 'h' WHEN 'sold' THEN 's' WHEN 'blocked' THEN 'b'
                    ELSE CASE category WHEN 'wheelchair' THEN 'w'
                        WHEN 'companion' THEN CASE WHEN ordinal IN (SELECT ordinal FROM kept) THEN 'c' ELSE 'a' END
                        ELSE '.' END END AS letter
            FROM seats
            WHERE event_id = e.id
        ) places
    ) END AS map
FROM (SELECT $1::int AS shard) s
LEFT JOIN control c ON c.shard = s.shard
LEFT JOIN shard_marks m ON m.shard = c.shard AND m.epoch = c.epoch
LEFT JOIN events e ON e.id = $2 AND e.organization_id = $3 AND e.opened_at IS NOT NULL
