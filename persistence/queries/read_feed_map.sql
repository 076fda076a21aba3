-- Reads an event's seats as they are committed, a letter each in their order, and the last position of its feed. What is
-- committed and not announced yet is in the seats already, and comes again after that position.
-- $1 organization_id uuid: the organisation
-- $2 event_id uuid: its event
SELECT
    coalesce((SELECT max(position) FROM outbox WHERE organization_id = $1 AND event_id = $2), 0) AS position,
    coalesce((
        SELECT string_agg(CASE s.status WHEN 'held' THEN 'h' WHEN 'sold' THEN 's' WHEN 'blocked' THEN 'b'
            ELSE CASE s.category WHEN 'wheelchair' THEN 'w' WHEN 'companion' THEN CASE WHEN k.ordinal IS NULL THEN 'a' ELSE 'c' END
                ELSE '.' END END, '' ORDER BY s.ordinal)
        FROM seats s
        LEFT JOIN kept_seats($2) k ON k.ordinal = s.ordinal
        WHERE s.organization_id = $1 AND s.event_id = $2
    ), '') AS map,
    ARRAY(
        SELECT s.seat_id
        FROM seats s
        CROSS JOIN LATERAL (SELECT * FROM seat_holds WHERE hold_id = s.seat_hold_id AND line = 0 OFFSET 0) h
        WHERE s.organization_id = $1 AND s.event_id = $2 AND s.category IN ('wheelchair', 'companion')
            AND s.category = 'wheelchair' AND s.status IN ('held', 'sold') AND h.companions_declined
    ) AS declined
