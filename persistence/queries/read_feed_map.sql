-- Reads an event's seats as they are committed, a letter each in their order, and the last position of its feed. What is
-- committed and not announced yet is in the seats already, and comes again after that position.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
SELECT
    coalesce((SELECT max(position) FROM outbox WHERE organization_id = $1 AND event_id = $2), 0) AS position,
    coalesce((
        SELECT string_agg(CASE status WHEN 'available' THEN '.' WHEN 'held' THEN 'h' WHEN 'sold' THEN 's' ELSE 'b' END, ''
            ORDER BY ordinal)
        FROM seats
        WHERE organization_id = $1 AND event_id = $2
    ), '') AS map
