-- Wheelchair seats and the companion seats that are kept for their buyers. That a seat is kept is nowhere written down: it
-- follows from who has the wheelchair seats it belongs to, and from how full its zone is.

ALTER TABLE seats ADD COLUMN companion_of integer[];
COMMENT ON COLUMN seats.companion_of IS 'Of a companion seat: the ordinals of the wheelchair seats it belongs to.';
UPDATE seats c
SET companion_of = p.wheelchairs
FROM (
    SELECT c.event_id, c.ordinal, array_agg(DISTINCT w.ordinal ORDER BY w.ordinal) AS wheelchairs
    FROM events e
    CROSS JOIN LATERAL (
        SELECT seat ->> 'seat_id' AS wheelchair, companion
        FROM jsonb_array_elements(e.document -> 'zones') AS zone
        CROSS JOIN LATERAL jsonb_array_elements(zone -> 'seats') AS seat
        CROSS JOIN LATERAL jsonb_array_elements_text(seat -> 'companion_seat_ids') AS companion
        UNION
        SELECT first, second
        FROM jsonb_array_elements(e.document -> 'seat_groups') AS pair
        CROSS JOIN LATERAL jsonb_array_elements_text(pair -> 'seat_ids') AS first
        CROSS JOIN LATERAL jsonb_array_elements_text(pair -> 'seat_ids') AS second
        WHERE pair ->> 'group_type' = 'wheelchair_pair'
    ) named
    JOIN seats w ON w.event_id = e.id AND w.seat_id = named.wheelchair AND w.category = 'wheelchair'
    JOIN seats c ON c.event_id = e.id AND c.seat_id = named.companion AND c.category = 'companion'
    GROUP BY c.event_id, c.ordinal
) p
WHERE c.event_id = p.event_id AND c.ordinal = p.ordinal;
CREATE INDEX seats_accessible ON seats (event_id) WHERE category IN ('wheelchair', 'companion');

ALTER TABLE seat_holds ADD COLUMN companions_declined boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN seat_holds.companions_declined IS 'The buyer does not want the companion seats of the hold''s wheelchair seats.';

CREATE FUNCTION companion_percent(document jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE document #>> '{policy,enforce_accessibility_rules}' WHEN 'false' THEN 0
            ELSE coalesce((document #>> '{policy,companion_release_occupancy_threshold}')::integer, 85) END
    $$;
ALTER TABLE events ADD COLUMN companion_percent integer GENERATED ALWAYS AS (companion_percent(document)) STORED;
COMMENT ON COLUMN events.companion_percent IS 'How full a zone may be before companion seats are no longer kept; 0 where they never are.';

CREATE FUNCTION kept_seats(of_event uuid) RETURNS TABLE (ordinal integer, zone integer)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
        SELECT c.ordinal, c.zone
        FROM seats c
        JOIN zones z ON z.event_id = c.event_id AND z.zone = c.zone
        JOIN events e ON e.id = c.event_id
        WHERE c.event_id = of_event AND c.category IN ('wheelchair', 'companion') AND c.companion_of IS NOT NULL
            AND c.status = 'available'
            AND 100 * (z.held + z.sold) < e.companion_percent * z.capacity
            AND EXISTS (
                SELECT
                FROM seats w
                JOIN seat_holds h ON h.hold_id = w.seat_hold_id AND h.line = 0
                WHERE w.event_id = c.event_id AND w.ordinal = ANY (c.companion_of) AND NOT h.companions_declined
                    AND (w.status = 'sold' OR w.status = 'held' AND w.held_until > clock_timestamp())
            )
    $$;
COMMENT ON FUNCTION kept_seats IS 'The companion seats of an event that are free, and kept for whoever has a wheelchair seat of theirs.';

ALTER TABLE outbox DROP CONSTRAINT outbox_kind_known;
ALTER TABLE outbox ADD CONSTRAINT outbox_kind_known
    CHECK (kind IN ('SeatReserved', 'SeatReleased', 'SeatSold', 'SeatsBlocked', 'SeatsUnblocked', 'CompanionsDeclined'));
