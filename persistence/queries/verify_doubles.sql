-- Finds seats with two live holds or two tickets.
-- $1 event_id uuid: the event, null for all
SELECT event_id, 'seat ' || ordinal AS subject, 'has ' || count(*) || ' live holds' AS problem
FROM seat_holds
WHERE status = 'active' AND ordinal IS NOT NULL AND ($1::uuid IS NULL OR event_id = $1)
GROUP BY event_id, ordinal
HAVING count(*) > 1
UNION ALL
SELECT event_id, 'seat ' || ordinal, 'has ' || count(*) || ' tickets'
FROM tickets
WHERE ordinal IS NOT NULL AND ($1::uuid IS NULL OR event_id = $1)
GROUP BY event_id, ordinal
HAVING count(*) > 1
