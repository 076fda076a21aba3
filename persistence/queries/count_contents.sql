-- Says whether a database has anything in it.
SELECT (SELECT count(*) FROM (SELECT FROM seat_holds LIMIT 1) h) AS holds, (SELECT count(*) FROM control) AS shards,
    (SELECT count(*) FROM events) AS events
