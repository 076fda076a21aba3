-- Whatever refuses a request for seats to be chosen, or answers it, before any seat is looked at. `counts` then has the
-- values of `fields`.
if not well_formed then
  return { INVALID_REQUEST, '', 0, now_ms, 0, '', '' }
elseif units > max_units or units > MAX_UNITS then
  return { TOO_MANY_SEATS, '', 0, now_ms, 0, '', '' }
end

local seat_zones = #zone_names
local counts = call('HMGET', KEY_COUNTS, unpack(fields))
local event_version = counts[1]
if not event_version then
  return { EVENT_NOT_FOUND, '', 0, now_ms, 0, '', '' }
end
-- @include read_holders
if on_record then
  -- @include known_hold
end
-- @include admission
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, '', '' }
end
-- @include find_short_zones
if misplaced ~= '' then
  return { SEAT_NOT_FOUND, '', 0, now_ms, 0, '', misplaced }
end
