-- Counts a failed delivery and says when to try again.
-- $1 id bigint: the row
-- $2 delay_s double precision: how long to wait, in seconds
UPDATE outbox
SET attempts = attempts + 1, retry_at = clock_timestamp() + make_interval(secs => $2::double precision)
WHERE id = $1::bigint;
