-- Lists the versions of an organisation's layouts, and how many events that are on sale use each.
-- $1 organization_id uuid: the organisation
SELECT l.id AS layout_id, l.version, l.venue_id, l.name, l.total_capacity, l.created_at,
    (SELECT count(*) FROM event_layouts u JOIN events e ON e.id = u.event_id
        WHERE u.layout_id = l.id AND u.layout_version = l.version AND e.state IN ('published', 'live')) AS events_on_sale
FROM layouts l
WHERE l.organization_id = $1
ORDER BY l.name, l.id, l.version
