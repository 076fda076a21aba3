-- Finds checkouts and their holds by the checkout's id, and keeps the answers to requests that may be repeated.

CREATE INDEX checkouts_by_id ON checkouts (organization_id, id);
CREATE INDEX seat_holds_by_checkout ON seat_holds (event_id, checkout_id) WHERE checkout_id IS NOT NULL;

CREATE TABLE kept_answers (
    organization_id uuid NOT NULL,
    user_id         uuid NOT NULL,
    path            text NOT NULL,
    key             text NOT NULL,
    fingerprint     bytea NOT NULL,
    claim           uuid NOT NULL,
    claimed_at      timestamptz NOT NULL DEFAULT now(),
    status          integer,
    content_type    text,
    body            bytea,
    PRIMARY KEY (organization_id, user_id, path, key)
);
COMMENT ON TABLE kept_answers IS 'The first answer to each request with an Idempotency-Key; without a status it is being worked out by whoever has the claim.';
CREATE INDEX kept_answers_by_time ON kept_answers (claimed_at);

ALTER TABLE kept_answers ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_organization ON kept_answers USING (organization_id = current_organization());
GRANT SELECT ON kept_answers TO holdfast_tenant;
