-- Replaces the names and capacities of an event's zones.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 zones integer[]: the index of each zone
-- $4 names text[]: its name
-- $5 capacities integer[]: how many people it takes
UPDATE zones z
SET name = t.name, capacity = t.capacity
FROM unnest($3::integer[], $4::text[], $5::integer[]) AS t (zone, name, capacity)
WHERE z.event_id = $1 AND z.organization_id = $2 AND z.zone = t.zone AND (z.name, z.capacity) <> (t.name, t.capacity)
