-- Reads what is kept of a request under a key.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: who asks
-- $3 path text: what for
-- $4 key text: the key of the request
SELECT fingerprint, status, content_type, body
FROM kept_answers
WHERE organization_id = $1 AND user_id = $2 AND path = $3 AND key = $4
