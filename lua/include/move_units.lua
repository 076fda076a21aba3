-- @include layout
-- Changes the stored counters of zones: each of the three tables gives the units to add, by zone.
local function move_units(held, sold, blocked)
  local names, seen = {}, {}
  for _, totals in ipairs({ held, sold, blocked }) do
    for zone in pairs(totals) do
      if not seen[zone] then
        seen[zone] = true
        names[#names + 1] = zone
      end
    end
  end
  if #names == 0 then
    return
  end
  local packed, fields = call('HMGET', KEY_COUNTS, unpack(names)), {}
  for i, zone in ipairs(names) do
    local capacity, seats, zone_held, zone_sold, zone_blocked = struct.unpack(ZONE, packed[i])
    fields[2 * i - 1] = zone
    fields[2 * i] = struct.pack(ZONE, capacity, seats, zone_held + (held[zone] or 0), zone_sold + (sold[zone] or 0),
      zone_blocked + (blocked[zone] or 0))
  end
  call('HSET', KEY_COUNTS, unpack(fields))
end
