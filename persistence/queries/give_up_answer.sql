-- Gives a claim up, so that a repeat works the answer out.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: who asked
-- $3 path text: what for
-- $4 key text: the key of the request
-- $5 claim uuid: the claim
DELETE FROM kept_answers
WHERE organization_id = $1 AND user_id = $2 AND path = $3 AND key = $4 AND claim = $5 AND status IS NULL
