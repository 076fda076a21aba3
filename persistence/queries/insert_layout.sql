-- Inserts a version of a layout.
-- $1 id uuid: the layout
-- $2 version integer: the version
-- $3 organization_id uuid: its organisation
-- $4 venue_id uuid: the venue
-- $5 name text: its name
-- $6 total_capacity integer: the capacity of all its zones
-- $7 document jsonb: the document, as JSON text
INSERT INTO layouts (id, version, organization_id, venue_id, name, total_capacity, document)
VALUES ($1, $2, $3, $4, $5, $6, $7)
