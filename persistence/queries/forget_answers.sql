-- Forgets answers that are old enough; the rows of the result are those forgotten.
-- $1 age_s float8: how old, in seconds
-- $2 limit bigint: how many at most
DELETE FROM kept_answers
WHERE (organization_id, user_id, path, key) IN (
    SELECT organization_id, user_id, path, key
    FROM kept_answers
    WHERE claimed_at < now() - make_interval(secs => $1)
    ORDER BY claimed_at
    LIMIT $2
)
RETURNING claim
