-- Inserts the zones of a new event.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 zones integer[]: the index of each zone
-- $4 zone_ids text[]: its id in the document
-- $5 zone_types text[]: its type
-- $6 names text[]: its name
-- $7 capacities integer[]: how many people it takes
-- $8 seats integer[]: how many seats it has, 0 for general admission
-- $9 blocked integer[]: how many of them are blocked from the start
INSERT INTO zones (event_id, organization_id, zone, zone_id, zone_type, name, capacity, seats, blocked)
SELECT $1, $2, zone, zone_id, zone_type, name, capacity, seats, blocked
FROM unnest($3::integer[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::integer[], $9::integer[])
    AS t (zone, zone_id, zone_type, name, capacity, seats, blocked)
