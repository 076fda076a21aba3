-- Compares the wish with the zones' counters: `misplaced` has the zones that do not exist or are of the other kind,
-- `short` those without room for it, with the units they lack. A blocked seat is out of reach by its own byte in the
-- map, a blocked general-admission place only by this sum.
local misplaced, short = '', ''
for i = 1, #zone_names do
  local zone, packed = zone_names[i], counts[i + 1]
  if not packed then
    misplaced = misplaced .. struct.pack(PAIR, zone, totals[zone])
  else
    local capacity, zone_seats, held, sold, blocked = struct.unpack(ZONE, packed)
    local room = capacity - held - sold - (zone_seats == 0 and blocked or 0)
    if (zone_seats > 0) ~= (i <= seat_zones) then
      misplaced = misplaced .. struct.pack(PAIR, zone, totals[zone])
    elseif totals[zone] > room then
      short = short .. struct.pack(PAIR, zone, totals[zone] - room)
    end
  end
end
