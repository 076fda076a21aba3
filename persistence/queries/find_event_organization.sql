-- Says whose an event is, for operators, who name events by their id alone.
-- $1 id uuid: the event
SELECT organization_id
FROM events
WHERE id = $1
