-- Finds sold holds without all of their tickets, tickets whose hold is not sold, and holds whose lines have ended differently.
-- $1 event_id uuid: the event, null for all
WITH holds AS (
    SELECT event_id, hold_id, min(status) AS status, count(DISTINCT status) AS statuses, sum(quantity) AS units
    FROM seat_holds
    WHERE $1::uuid IS NULL OR event_id = $1
    GROUP BY event_id, hold_id
), issued AS (
    SELECT event_id, hold_id, count(*) AS tickets
    FROM tickets
    WHERE $1::uuid IS NULL OR event_id = $1
    GROUP BY event_id, hold_id
)
SELECT event_id, 'hold ' || hold_id AS subject,
    CASE
        WHEN status IS NULL THEN 'has ' || tickets || ' tickets and no row'
        WHEN statuses > 1 THEN 'has lines of different status'
        WHEN status = 'converted' THEN 'is sold with ' || units || ' units and ' || coalesce(tickets, 0) || ' tickets'
        ELSE 'is ' || status || ' and has ' || tickets || ' tickets'
    END AS problem
FROM holds
FULL JOIN issued USING (event_id, hold_id)
WHERE status IS NULL OR statuses > 1 OR coalesce(tickets, 0) <> CASE status WHEN 'converted' THEN units ELSE 0 END
