-- The seats as the digest has them: one held past the end of its hold is available.
-- $1 at timestamptz: the moment
SELECT jsonb_build_array(event_id, ordinal, seat_id, zone,
    CASE WHEN status = 'held' AND held_until <= $1 THEN 'available' ELSE status END,
    CASE WHEN status <> 'held' OR held_until > $1 THEN seat_hold_id END,
    CASE WHEN held_until > $1 THEN extract(epoch FROM held_until) END, ticket_id)::text AS line
FROM seats
WHERE $1::timestamptz IS NOT NULL
ORDER BY event_id, ordinal
