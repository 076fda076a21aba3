-- Keeps the answer to a request, unless the claim on it was lost.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: who asked
-- $3 path text: what for
-- $4 key text: the key of the request
-- $5 claim uuid: the claim under which it was worked out
-- $6 status int: the status of the answer
-- $7 content_type text: what its body is
-- $8 body bytea: its body
UPDATE kept_answers
SET status = $6, content_type = $7, body = $8
WHERE organization_id = $1 AND user_id = $2 AND path = $3 AND key = $4 AND claim = $5
