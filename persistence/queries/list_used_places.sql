-- Lists the seats and zones of an organisation's event that its past or present refers to: those of every hold and ticket. A row
-- without an ordinal is of a zone's places.
-- $1 event_id uuid: the event
-- $2 organization_id uuid: its organisation
SELECT DISTINCT zone, ordinal FROM seat_holds WHERE event_id = $1 AND organization_id = $2
UNION
SELECT zone, ordinal FROM tickets WHERE event_id = $1 AND organization_id = $2
