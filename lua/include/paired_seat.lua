-- What `counts` has of a wheelchair or companion seat: its byte while free, then the seats that belong to it, as pairs.
-- Nil for any other seat.
local function paired_seat(ordinal)
  return call('HGET', KEY_COUNTS, 's' .. ordinal) or nil
end
