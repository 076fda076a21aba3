-- Lets front ends follow an event's changes, and go on where they were, whatever happens in between. The ids of the outbox do
-- not serve for that: two transactions may commit in the other order than they drew them, and whoever has seen the later one
-- never asks for the earlier. Positions are given by the one announcer there is, to rows that are committed.

CREATE SEQUENCE feed_positions;
ALTER TABLE outbox ADD COLUMN position bigint;
COMMENT ON COLUMN outbox.position IS 'The place in the feed, given when the row is announced; it grows in the order in which rows become known.';
UPDATE outbox o
SET position = n.position
FROM (
    SELECT id, nextval('feed_positions') AS position
    FROM (SELECT id FROM outbox WHERE announced_at IS NOT NULL ORDER BY id) ordered
) n
WHERE o.id = n.id;
CREATE UNIQUE INDEX outbox_feed ON outbox (event_id, position) WHERE position IS NOT NULL;

-- Seats taken out of sale and put back change what everybody sees, too.
ALTER TABLE outbox DROP CONSTRAINT outbox_kind_known;
ALTER TABLE outbox ADD CONSTRAINT outbox_kind_known
    CHECK (kind IN ('SeatReserved', 'SeatReleased', 'SeatSold', 'SeatsBlocked', 'SeatsUnblocked'));
