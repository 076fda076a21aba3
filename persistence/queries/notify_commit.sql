-- Tells those who listen for marks how far the log is committed, and publishers that there is work, when this commits.
-- $1 marks_channel text: the channel of the marks
-- $2 payload text: the marks
-- $3 outbox_channel text: the channel of the publishers
SELECT pg_notify($1, $2), pg_notify($3, '')
