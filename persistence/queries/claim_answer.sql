-- Claims the answer to a request for whoever works it out: a row if nobody has it, or if whoever had claimed it took too long.
-- $1 organization_id uuid: the organisation
-- $2 user_id uuid: who asks
-- $3 path text: what for
-- $4 key text: the key of the request
-- $5 fingerprint bytea: the digest of its content
-- $6 claim uuid: names this claim
-- $7 lease_s float8: seconds after which a claim without an answer is given up
INSERT INTO kept_answers AS k (organization_id, user_id, path, key, fingerprint, claim)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (organization_id, user_id, path, key) DO UPDATE SET claim = excluded.claim, claimed_at = excluded.claimed_at
WHERE k.status IS NULL AND k.fingerprint = excluded.fingerprint AND k.claimed_at < now() - make_interval(secs => $7)
RETURNING claim
