-- Lets Postgres serve events by itself: which of them are in service, and what a user or an address holds.

ALTER TABLE events ADD COLUMN opened_at timestamptz;
COMMENT ON COLUMN events.opened_at IS 'When the event went into service; null while it is not.';
UPDATE events e
SET opened_at = a.created_at
FROM (
    SELECT DISTINCT ON (event_id) event_id, action, created_at
    FROM audit_log
    WHERE action IN ('event_opened', 'event_closed')
    ORDER BY event_id, id DESC
) a
WHERE a.event_id = e.id AND a.action = 'event_opened';

-- The sliding window counts ended holds too, so the index by user has all of them.
CREATE INDEX seat_holds_by_holder ON seat_holds (event_id, user_id, created_at);
DROP INDEX seat_holds_by_user;
CREATE INDEX seat_holds_by_address ON seat_holds (event_id, address) WHERE status = 'active' AND address <> '';
