-- Takes away indexes that every hold pays for and nothing asks for any more. An organisation's timeline is that of its audit, and the
-- holds of an event are found by their event; general admission is counted from the zones.

DROP INDEX seat_holds_by_time;
DROP INDEX seat_holds_of_places;
