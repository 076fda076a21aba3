-- Reads the status of some checkouts.
-- $1 event_ids uuid[]: the event of each
-- $2 ids text[]: the checkouts
SELECT event_id, id, status
FROM checkouts
JOIN unnest($1::uuid[], $2::text[]) AS t (event_id, id) USING (event_id, id)
