-- Counts, by shard, what an operator should look at: entries that could not be applied, and refusals not given back.
SELECT shard, sum(dead)::bigint AS dead_letters, sum(refused)::bigint AS uncompensated
FROM (
    SELECT shard, 1 AS dead, 0 AS refused FROM dead_letters
    UNION ALL
    SELECT shard, 0, 1 FROM rejections WHERE compensated_at IS NULL
) AS t
GROUP BY shard
