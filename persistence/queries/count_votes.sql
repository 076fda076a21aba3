-- Finds the shards that Redis serves and that somebody who is alive votes against, in the epoch they are in. Front ends vote;
-- keepers only where no front end is alive. A shard that is being closed in good order waits for that.
-- $1 alive_s double precision: how long ago a live process has been seen at most, seconds
WITH live AS (
    SELECT * FROM voters WHERE seen_at > clock_timestamp() - make_interval(secs => $1::double precision)
), electorate AS (
    SELECT * FROM live
    WHERE kind = 'front end' OR NOT EXISTS (SELECT FROM live WHERE kind = 'front end')
), votes AS (
    SELECT e.id, e.name, v.shard, v.epoch, v.reason
    FROM electorate e, unnest(e.shards, e.epochs, e.reasons) AS v (shard, epoch, reason)
)
SELECT c.shard, c.epoch, min(v.reason) AS reason, array_agg(v.name ORDER BY v.name) AS names,
    (SELECT count(*) FROM electorate) AS electorate
FROM control c
JOIN votes v ON v.shard = c.shard AND v.epoch = c.epoch
WHERE c.mode = 'redis' AND (c.closing_at IS NULL OR c.closing_at < clock_timestamp() - interval '15 seconds')
GROUP BY c.shard, c.epoch
ORDER BY c.shard
