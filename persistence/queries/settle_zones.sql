-- Makes the counters of zones say what the rows of holds, tickets and seats say. Blocked places of general admission have no
-- rows and stay. The rows of the result are the zones that did not.
-- $1 event_ids uuid[]: the events
UPDATE zones z
SET held = t.held, sold = t.sold, blocked = t.blocked
FROM (
    SELECT o.event_id, o.zone, o.held AS held_before, o.sold AS sold_before, o.blocked AS blocked_before,
        coalesce((SELECT sum(quantity) FROM seat_holds h
            WHERE h.event_id = o.event_id AND h.zone = o.zone AND h.status = 'active'), 0)::int AS held,
        (SELECT count(*) FROM tickets k WHERE k.event_id = o.event_id AND k.zone = o.zone)::int AS sold,
        CASE WHEN o.seats = 0 THEN o.blocked ELSE (SELECT count(*) FROM seats s
            WHERE s.event_id = o.event_id AND s.zone = o.zone AND s.status = 'blocked')::int END AS blocked
    FROM zones o
    WHERE o.event_id = ANY ($1::uuid[])
) t
WHERE z.event_id = t.event_id AND z.zone = t.zone AND (z.held, z.sold, z.blocked) <> (t.held, t.sold, t.blocked)
RETURNING z.event_id, z.zone_id, t.held_before, t.sold_before, t.blocked_before, z.held, z.sold, z.blocked
