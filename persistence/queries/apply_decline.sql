-- Notes that the buyers of wheelchair seats do not want the companion seats of these, and tells audit and outbox. A hold that
-- has ended otherwise than by a sale, or that declined already, is left alone.
-- $1 hold_id uuid: the hold
-- $2 event_id uuid: its event
-- $3 ordinals int[]: the wheelchair seats
-- $4 declined_at timestamptz: when
-- $5 epoch bigint: the epoch of the log entry
-- $6 seq bigint: the number of the log entry
-- $7 ip_address text: the caller's address
-- $8 user_agent text: the caller's name
-- $9 request_id text: the request
WITH declined AS (
    UPDATE seat_holds
    SET companions_declined = true, updated_at = $4, epoch = $5, seq = $6
    WHERE hold_id = $1::uuid AND event_id = $2 AND status IN ('active', 'converted') AND NOT companions_declined
        AND (epoch, seq) < ($5, $6)
    RETURNING organization_id, user_id, line
), summary AS (
    SELECT d.organization_id, d.user_id,
        (SELECT jsonb_agg(seat_id ORDER BY ordinal) FROM seats WHERE event_id = $2 AND ordinal = ANY ($3::int[])) AS seat_ids
    FROM declined d
    WHERE d.line = 0
), audited AS (
    INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
        request_id, created_at)
    SELECT organization_id, $2, user_id, 'companions_declined', 'SeatHold', $1::uuid::text, jsonb_build_object('seat_ids', seat_ids),
        $7, $8, $9, $4
    FROM summary
)
INSERT INTO outbox (organization_id, event_id, kind, payload)
SELECT organization_id, $2, 'CompanionsDeclined',
    jsonb_build_object('hold_id', $1::uuid, 'event_id', $2::uuid, 'organization_id', organization_id, 'user_id', user_id,
        'seat_ids', seat_ids, 'quantities', '[]'::jsonb, 'timestamp', $4)
FROM summary
