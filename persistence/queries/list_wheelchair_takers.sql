-- Lists the wheelchair seats of an event that are held or sold, and who has taken them.
-- $1 event_id uuid: the event
SELECT s.ordinal, h.user_id, h.companions_declined AS declined
FROM seats s
CROSS JOIN LATERAL (SELECT * FROM seat_holds WHERE hold_id = s.seat_hold_id AND line = 0 OFFSET 0) h
WHERE s.event_id = $1 AND s.category IN ('wheelchair', 'companion') AND s.category = 'wheelchair'
    AND s.status IN ('held', 'sold')
ORDER BY s.ordinal
