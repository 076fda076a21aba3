-- Finds holds that carry the number of a log entry above the mark: something was applied that is not accounted for.
-- $1 event_id uuid: the event, null for all
SELECT h.event_id, 'hold ' || h.hold_id AS subject, 'is of entry ' || h.epoch || '-' || h.seq || ', above the mark' AS problem
FROM seat_holds h
JOIN events e ON e.id = h.event_id
JOIN shard_marks m ON m.shard = e.shard AND m.epoch = h.epoch
WHERE h.seq > m.seq AND h.line = 0 AND ($1::uuid IS NULL OR h.event_id = $1)
