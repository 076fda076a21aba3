-- Says to which wheelchair seats the companion seats of an event belong, and that its other seats belong to none.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
-- $3 companions int[]: a companion seat
-- $4 wheelchairs int[]: a wheelchair seat that it belongs to
WITH pairs AS (
    SELECT companion, array_agg(wheelchair ORDER BY wheelchair) AS wheelchairs
    FROM unnest($3::int[], $4::int[]) AS t (companion, wheelchair)
    GROUP BY companion
)
UPDATE seats s
SET companion_of = (SELECT wheelchairs FROM pairs WHERE companion = s.ordinal)
WHERE s.event_id = $1 AND s.organization_id = $2
    AND (s.companion_of IS NOT NULL OR s.ordinal IN (SELECT companion FROM pairs))
