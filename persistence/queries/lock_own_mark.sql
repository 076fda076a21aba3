-- Keeps all other writers of a shard that Postgres serves waiting until the transaction ends, and reads its epoch and the
-- number of its last change. Without a row in the result somebody else serves the shard. It comes after the fence, in a
-- statement of its own, and before every other lock: whoever waits here holds nothing that another one waits for.
-- $1 shard int: the shard
INSERT INTO shard_marks (shard, epoch, seq)
SELECT shard, epoch, 0 FROM control WHERE shard = $1 AND mode = 'db'
ON CONFLICT (shard, epoch) DO UPDATE SET updated_at = now()
RETURNING epoch, seq
