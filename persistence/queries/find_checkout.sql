-- Reads a checkout of an organisation with the holds it took and the tickets of its sale, as they are at one moment.
-- $1 organization_id uuid: the organisation
-- $2 id text: the checkout
SELECT c.id, c.event_id, c.user_id, c.status, c.created_at, c.updated_at,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object('hold_id', h.hold_id, 'zone', h.zone, 'ordinal', h.ordinal,
            'quantity', h.quantity, 'status', h.status, 'held_until', h.held_until, 'ended_at', h.ended_at)
            ORDER BY h.created_at, h.hold_id, h.line)
        FROM seat_holds h
        WHERE h.event_id = c.event_id AND h.checkout_id = c.id AND h.organization_id = c.organization_id
    ), '[]') AS lines,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object('ticket_id', t.id, 'hold_id', t.hold_id, 'zone', t.zone, 'ordinal', t.ordinal)
            ORDER BY t.zone, t.ordinal, t.id)
        FROM seat_holds h
        JOIN tickets t ON t.hold_id = h.hold_id AND t.organization_id = h.organization_id
        WHERE h.event_id = c.event_id AND h.checkout_id = c.id AND h.organization_id = c.organization_id AND h.line = 0
    ), '[]') AS tickets
FROM checkouts c
WHERE c.organization_id = $1 AND c.id = $2
