-- Lets the two ways out of the outbox go at their own pace: pub/sub goes on while a webhook's receiver is down.

ALTER TABLE outbox ADD COLUMN announced_at timestamptz;
COMMENT ON COLUMN outbox.announced_at IS 'When pub/sub was tried; published_at says when the webhook has taken it, or that there is none.';
UPDATE outbox SET announced_at = published_at WHERE published_at IS NOT NULL;
CREATE INDEX outbox_unannounced ON outbox (id) WHERE announced_at IS NULL;

-- Occupancy counts general admission from these; seats are told by their own rows.
CREATE INDEX seat_holds_of_places ON seat_holds (event_id, zone) WHERE status = 'active' AND ordinal IS NULL;
CREATE INDEX tickets_of_places ON tickets (event_id, zone) WHERE ordinal IS NULL;
