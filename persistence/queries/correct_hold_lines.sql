-- Brings lines of holds to where the log says they are. A sold one stays sold and an ended one ended. The rows of the result
-- are those that were changed.
-- $1 hold_ids uuid[]: the hold of each line
-- $2 lines smallint[]: the number of the line within its hold
-- $3 statuses text[]: its status
-- $4 held_until timestamptz[]: when it ends, null if not known
-- $5 checkouts text[]: its checkout
-- $6 extensions text[]: the key of its last extension, null if not known
-- $7 reasons text[]: why it ended
-- $8 ended_at timestamptz[]: when it ended
-- $9 epochs bigint[]: the epoch of its last log entry
-- $10 seqs bigint[]: the number of its last log entry
-- $11 updated_at timestamptz[]: the time of its last log entry
-- $12 declined boolean[]: whether its companion seats were declined, null if not known
UPDATE seat_holds h
SET status = CASE WHEN t.moves THEN t.status ELSE h.status END,
    release_reason = CASE WHEN t.moves THEN t.reason ELSE h.release_reason END,
    ended_at = CASE WHEN t.moves THEN t.ended_at ELSE h.ended_at END,
    held_until = coalesce(t.held_until, h.held_until),
    checkout_id = coalesce(t.checkout, h.checkout_id),
    extension_key = coalesce(t.extension, h.extension_key),
    companions_declined = coalesce(t.declined, h.companions_declined),
    epoch = t.epoch, seq = t.seq, updated_at = t.updated_at
FROM (
    SELECT g.*, o.status = g.status OR o.status = 'active' OR (o.status = 'expired' AND g.status = 'converted') AS moves
    FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::text[],
            $8::timestamptz[], $9::bigint[], $10::bigint[], $11::timestamptz[], $12::boolean[])
        AS g (hold_id, line, status, held_until, checkout, extension, reason, ended_at, epoch, seq, updated_at, declined)
    JOIN seat_holds o ON o.hold_id = g.hold_id AND o.line = g.line
) t
WHERE h.hold_id = t.hold_id AND h.line = t.line
RETURNING h.hold_id, h.line
