-- Holdfast's tables. Every row belongs to an organisation; row-level security keeps a session that has named one
-- (SET holdfast.organization_id) from seeing another's, behind the filter that every query has of its own.

CREATE TABLE organizations (
    id          uuid PRIMARY KEY,
    name        text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE events (
    id              uuid PRIMARY KEY,
    organization_id uuid NOT NULL REFERENCES organizations (id),
    name            text NOT NULL,
    state           text NOT NULL,
    shard           integer NOT NULL,
    config_version  text NOT NULL,
    document        jsonb NOT NULL,
    sale_start      timestamptz,
    sale_end        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT events_state_known
        CHECK (state IN ('draft', 'published', 'live', 'closed', 'cancelled', 'archived')),
    CONSTRAINT events_organization UNIQUE (organization_id, id)
);

CREATE TABLE zones (
    event_id        uuid NOT NULL,
    zone            integer NOT NULL,
    organization_id uuid NOT NULL,
    zone_id         text NOT NULL,
    zone_type       text NOT NULL,
    name            text NOT NULL,
    capacity        integer NOT NULL,
    seats           integer NOT NULL,
    held            integer NOT NULL DEFAULT 0,
    sold            integer NOT NULL DEFAULT 0,
    blocked         integer NOT NULL DEFAULT 0,
    PRIMARY KEY (event_id, zone),
    FOREIGN KEY (organization_id, event_id) REFERENCES events (organization_id, id),
    CONSTRAINT zones_capacity_positive CHECK (capacity > 0),
    CONSTRAINT zones_counters_not_negative CHECK (held >= 0 AND sold >= 0 AND blocked >= 0)
);
COMMENT ON COLUMN zones.seats IS 'Seats of the zone; 0 for general admission, which has places only.';
COMMENT ON COLUMN zones.held IS 'Units of active holds, kept by the statements that change them, as are sold and blocked.';

CREATE TABLE seats (
    event_id        uuid NOT NULL,
    ordinal         integer NOT NULL,
    organization_id uuid NOT NULL,
    seat_id         text NOT NULL,
    zone            integer NOT NULL,
    row             text NOT NULL,
    number          integer NOT NULL,
    category        text NOT NULL,
    status          text NOT NULL DEFAULT 'available',
    held_until      timestamptz,
    locked_at       timestamptz,
    seat_hold_id    uuid,
    ticket_id       uuid,
    version         bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (event_id, ordinal),
    FOREIGN KEY (event_id, zone) REFERENCES zones (event_id, zone),
    CONSTRAINT seats_seat_id UNIQUE (event_id, seat_id),
    CONSTRAINT seats_status_known CHECK (status IN ('available', 'held', 'sold', 'blocked'))
) WITH (fillfactor = 70);
COMMENT ON COLUMN seats.version IS 'Counts every change of the seat.';

CREATE TABLE seat_holds (
    hold_id         uuid NOT NULL,
    line            smallint NOT NULL,
    organization_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    user_id         uuid NOT NULL,
    zone            integer NOT NULL,
    ordinal         integer,
    quantity        integer NOT NULL,
    status          text NOT NULL DEFAULT 'active',
    held_until      timestamptz NOT NULL,
    source          text NOT NULL DEFAULT 'web',
    cart_token      text NOT NULL DEFAULT '',
    fingerprint     text NOT NULL DEFAULT '',
    address         text NOT NULL DEFAULT '',
    checkout_id     text,
    extension_key   text NOT NULL DEFAULT '',
    release_reason  text,
    ttl_ms          integer NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    epoch           bigint NOT NULL,
    seq             bigint NOT NULL,
    PRIMARY KEY (hold_id, line),
    CONSTRAINT seat_holds_status_known CHECK (status IN ('active', 'converted', 'expired', 'cancelled')),
    CONSTRAINT seat_holds_quantity_positive CHECK (quantity > 0),
    CONSTRAINT seat_holds_reason_known CHECK (release_reason IN
        ('ttl_expired', 'user_cancelled', 'payment_failed', 'admin_override', 'not_persisted'))
) WITH (fillfactor = 80);
COMMENT ON TABLE seat_holds IS 'One row per seat held, or per zone and quantity. Rows are never deleted: status is the soft delete.';
CREATE UNIQUE INDEX seat_held_by_another_user ON seat_holds (event_id, ordinal) WHERE status = 'active' AND ordinal IS NOT NULL;
CREATE INDEX seat_holds_by_user ON seat_holds (event_id, user_id) WHERE status = 'active';
CREATE INDEX seat_holds_by_end ON seat_holds (held_until) WHERE status = 'active';
CREATE INDEX seat_holds_by_time ON seat_holds (organization_id, created_at DESC);

CREATE TABLE checkouts (
    id              text NOT NULL,
    organization_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    user_id         uuid NOT NULL,
    status          text NOT NULL DEFAULT 'open',
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (event_id, id),
    CONSTRAINT checkouts_status_known CHECK (status IN ('open', 'completed', 'failed', 'cancelled'))
);

CREATE TABLE tickets (
    id              uuid PRIMARY KEY,
    organization_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    zone            integer NOT NULL,
    ordinal         integer,
    hold_id         uuid NOT NULL,
    sale_id         text NOT NULL,
    user_id         uuid NOT NULL,
    created_at      timestamptz NOT NULL
);
CREATE UNIQUE INDEX seat_already_sold ON tickets (event_id, ordinal) WHERE ordinal IS NOT NULL;
CREATE INDEX tickets_by_hold ON tickets (hold_id);

CREATE TABLE audit_log (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id uuid NOT NULL,
    event_id        uuid,
    user_id         uuid,
    action          text NOT NULL,
    entity_type     text NOT NULL,
    entity_id       text NOT NULL,
    changes         jsonb NOT NULL,
    ip_address      text NOT NULL DEFAULT '',
    user_agent      text NOT NULL DEFAULT '',
    request_id      text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL
);
CREATE INDEX audit_log_by_time ON audit_log (organization_id, created_at DESC);

CREATE TABLE outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    kind            text NOT NULL,
    payload         jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    published_at    timestamptz,
    attempts        integer NOT NULL DEFAULT 0,
    retry_at        timestamptz,
    CONSTRAINT outbox_kind_known CHECK (kind IN ('SeatReserved', 'SeatReleased', 'SeatSold'))
);
CREATE INDEX outbox_waiting ON outbox (event_id, id) WHERE published_at IS NULL;

CREATE TABLE occupancy_snapshots (
    event_id        uuid NOT NULL,
    taken_at        timestamptz NOT NULL,
    organization_id uuid NOT NULL,
    capacity        integer NOT NULL,
    held            integer NOT NULL,
    sold            integer NOT NULL,
    blocked         integer NOT NULL,
    PRIMARY KEY (event_id, taken_at)
);

CREATE SEQUENCE epochs;
CREATE TABLE control (
    shard       integer PRIMARY KEY,
    epoch       bigint NOT NULL,
    mode        text NOT NULL DEFAULT 'redis',
    reason      text NOT NULL DEFAULT '',
    actor       text NOT NULL DEFAULT '',
    changed_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT control_mode_known CHECK (mode IN ('redis', 'db', 'recovering'))
);

CREATE TABLE shard_marks (
    shard       integer NOT NULL,
    epoch       bigint NOT NULL,
    seq         bigint NOT NULL,
    at_ms       bigint NOT NULL DEFAULT 0,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, epoch)
);
COMMENT ON TABLE shard_marks IS 'The last log entry of each shard and epoch that is applied; moved by compare-and-set in the transaction that applies.';

CREATE TABLE rejections (
    shard           integer NOT NULL,
    epoch           bigint NOT NULL,
    seq             bigint NOT NULL,
    organization_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    hold_id         uuid NOT NULL,
    operation       text NOT NULL,
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    compensated_at  timestamptz,
    PRIMARY KEY (shard, epoch, seq, hold_id)
);

CREATE TABLE dead_letters (
    shard       integer NOT NULL,
    epoch       bigint NOT NULL,
    seq         bigint NOT NULL,
    fields      jsonb NOT NULL,
    error       text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, epoch, seq)
);

CREATE TABLE quarantine (
    shard       integer NOT NULL,
    epoch       bigint NOT NULL,
    seq         bigint NOT NULL,
    fields      jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, epoch, seq)
);

-- The second line behind the queries' own filter. Row-level security does not bind the owner of a table, so questions of one
-- organisation are asked as this role. A session that has named no organisation sees nothing under it.
--
-- Roles belong to the whole cluster: another database may have made this one, or be making it right now, in which case the
-- insertion here waits for that transaction and then finds the name taken.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_tenant') THEN
        CREATE ROLE holdfast_tenant NOLOGIN;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

-- Whoever made the role may administer it, which does not include becoming it.
DO $$
BEGIN
    IF NOT pg_has_role(current_user, 'holdfast_tenant', 'SET') THEN
        GRANT holdfast_tenant TO CURRENT_USER;
    END IF;
EXCEPTION
    WHEN unique_violation THEN NULL;
END
$$;

CREATE FUNCTION current_organization() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('holdfast.organization_id', true), '')::uuid $$;

DO $$
DECLARE
    tenant_table text;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO holdfast_tenant', current_schema());
    FOREACH tenant_table IN ARRAY ARRAY['organizations', 'events', 'zones', 'seats', 'seat_holds', 'checkouts', 'tickets',
        'audit_log', 'outbox', 'occupancy_snapshots', 'rejections']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('CREATE POLICY own_organization ON %I USING (%I = current_organization())', tenant_table,
            CASE tenant_table WHEN 'organizations' THEN 'id' ELSE 'organization_id' END);
        EXECUTE format('GRANT SELECT ON %I TO holdfast_tenant', tenant_table);
    END LOOP;
END
$$;
