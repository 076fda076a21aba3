-- Finds seats that say something else than the rows of holds and tickets.
-- $1 event_id uuid: the event, null for all
SELECT s.event_id, 'seat ' || s.seat_id AS subject,
    CASE
        WHEN s.status = 'sold' AND k.id IS NULL THEN 'is sold without a ticket'
        WHEN s.status <> 'sold' AND k.id IS NOT NULL THEN 'is ' || s.status || ' though it has a ticket'
        WHEN s.status = 'sold' THEN 'names another ticket or hold than its ticket'
        WHEN s.status = 'held' AND h.hold_id IS NULL THEN 'is held without an active hold'
        WHEN s.status <> 'held' AND h.hold_id IS NOT NULL THEN 'is ' || s.status || ' though hold ' || h.hold_id || ' is active'
        WHEN s.status = 'held' THEN 'names another hold or end than its hold'
        ELSE 'is ' || s.status || ' and names a hold or a ticket'
    END AS problem
FROM seats s
LEFT JOIN tickets k ON k.event_id = s.event_id AND k.ordinal = s.ordinal
LEFT JOIN seat_holds h ON h.event_id = s.event_id AND h.ordinal = s.ordinal AND h.status = 'active'
WHERE ($1::uuid IS NULL OR s.event_id = $1)
    AND CASE s.status
        WHEN 'sold' THEN k.id IS DISTINCT FROM s.ticket_id OR k.id IS NULL OR k.hold_id IS DISTINCT FROM s.seat_hold_id
        WHEN 'held' THEN k.id IS NOT NULL OR h.hold_id IS NULL OR h.hold_id IS DISTINCT FROM s.seat_hold_id
            OR h.held_until IS DISTINCT FROM s.held_until
        ELSE k.id IS NOT NULL OR h.hold_id IS NOT NULL OR s.seat_hold_id IS NOT NULL OR s.ticket_id IS NOT NULL
    END
ORDER BY s.event_id, s.ordinal
