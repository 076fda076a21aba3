-- What events are made from: venues, their layouts in versions that never change, the organisation's seating policy, and its
-- members. An event that uses a layout refers to the version.

CREATE TABLE venues (
    id              uuid PRIMARY KEY,
    organization_id uuid NOT NULL REFERENCES organizations (id),
    name            text NOT NULL,
    address         text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT venues_organization UNIQUE (organization_id, id)
);

CREATE TABLE layouts (
    id              uuid NOT NULL,
    version         integer NOT NULL,
    organization_id uuid NOT NULL,
    venue_id        uuid NOT NULL,
    name            text NOT NULL,
    total_capacity  integer NOT NULL,
    document        jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, version),
    FOREIGN KEY (organization_id, venue_id) REFERENCES venues (organization_id, id),
    CONSTRAINT layouts_version_positive CHECK (version > 0)
);
CREATE INDEX layouts_of_organization ON layouts (organization_id, id, version);

CREATE FUNCTION refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a version of a layout never changes: save a new one'; END $$;
CREATE TRIGGER layouts_never_change BEFORE UPDATE OR DELETE ON layouts FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE event_layouts (
    event_id        uuid PRIMARY KEY,
    organization_id uuid NOT NULL,
    layout_id       uuid NOT NULL,
    layout_version  integer NOT NULL,
    plan            jsonb NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (organization_id, event_id) REFERENCES events (organization_id, id),
    FOREIGN KEY (layout_id, layout_version) REFERENCES layouts (id, version)
);
COMMENT ON COLUMN event_layouts.plan IS 'What the event wants otherwise than its layout and its organisation''s policy say.';

CREATE TABLE seating_policies (
    organization_id uuid PRIMARY KEY REFERENCES organizations (id),
    document        jsonb NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE memberships (
    organization_id uuid NOT NULL REFERENCES organizations (id),
    user_id         uuid NOT NULL,
    tier            text NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, user_id)
);

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['venues', 'layouts', 'event_layouts', 'seating_policies', 'memberships']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('CREATE POLICY own_organization ON %I USING (organization_id = current_organization())', tenant_table);
        EXECUTE format('GRANT SELECT ON %I TO holdfast_tenant', tenant_table);
    END LOOP;
END
$$;
