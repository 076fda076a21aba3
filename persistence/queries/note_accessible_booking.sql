-- Tells the audit of a hold with wheelchair seats, and which companion seats are kept with it. A hold that was refused, or of
-- which the audit was told before, is left alone.
-- $1 hold_id uuid: the hold
-- $2 event_id uuid: its event
-- $3 ordinals int[]: the wheelchair seats
-- $4 kept int[]: the companion seats that are kept
-- $5 booked_at timestamptz: when
-- $6 ip_address text: the caller's address
-- $7 user_agent text: the caller's name
-- $8 request_id text: the request
INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, ip_address, user_agent,
    request_id, created_at)
SELECT h.organization_id, h.event_id, h.user_id, 'accessibility_booking', 'SeatHold', $1::uuid::text,
    jsonb_build_object(
        'seat_ids', (SELECT jsonb_agg(seat_id ORDER BY ordinal) FROM seats WHERE event_id = $2 AND ordinal = ANY ($3::int[])),
        'companion_seat_ids', (
            SELECT coalesce(jsonb_agg(seat_id ORDER BY ordinal), '[]')
            FROM seats
            WHERE event_id = $2 AND companion_of && $3::int[]
        ),
        'kept_seat_ids', (
            SELECT coalesce(jsonb_agg(seat_id ORDER BY ordinal), '[]')
            FROM seats
            WHERE event_id = $2 AND ordinal = ANY ($4::int[])
        ),
        'companion_soft_reserved', cardinality($4::int[]) > 0),
    $6, $7, $8, $5
FROM seat_holds h
WHERE h.hold_id = $1::uuid AND h.event_id = $2 AND h.line = 0
    AND NOT EXISTS (
        SELECT
        FROM audit_log a
        WHERE a.organization_id = h.organization_id AND a.created_at = $5 AND a.entity_id = $1::uuid::text
            AND a.action = 'accessibility_booking'
    )
