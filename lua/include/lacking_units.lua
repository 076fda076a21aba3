-- @include count_zones
-- @include read_record
-- The zones that lack room for the units wanted, by zone, once the given records have given theirs back: pairs of zone
-- and units lacking.
local function lacking_units(wanted, returning_records)
  local returning, names, lacking = {}, {}, {}
  for _, record in ipairs(returning_records) do
    local hold = read_record(record)
    count_zones(returning, hold.seats, hold.quantities)
  end
  for zone in pairs(wanted) do
    names[#names + 1] = zone
  end
  local counts = #names > 0 and call('HMGET', KEY_COUNTS, unpack(names)) or {}
  for i, zone in ipairs(names) do
    local capacity, zone_seats, held, sold, blocked = struct.unpack(ZONE, counts[i])
    local room = capacity - held - sold - (zone_seats == 0 and blocked or 0) + (returning[zone] or 0)
    if wanted[zone] > room then
      lacking[#lacking + 1] = struct.pack(PAIR, zone, wanted[zone] - room)
    end
  end
  return table.concat(lacking)
end
