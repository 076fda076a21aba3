-- Limits how long the rest of the transaction waits for any one lock.
-- $1 milliseconds text: the limit, ms
SELECT set_config('lock_timeout', $1::text, true)
