-- @include layout
-- The counters of one zone (capacity, seats, held, sold, blocked), or nil when there is no such zone.
local function zone_counters(zone)
  local packed = call('HGET', KEY_COUNTS, zone)
  if packed then
    return struct.unpack(ZONE, packed)
  end
  return nil
end
