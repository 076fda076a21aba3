-- Reads the seats and quantities asked for: `units` in all, `totals` by zone, the zones in `zone_names` with those of
-- seats first (`seat_zones` of them). A seat or a zone listed twice, an empty wish, a quantity of zero are not well
-- formed.
local MAX_UNITS = 100
local MAX_PAIR_BYTES = 600
local seats, quantities = ARG_SEATS, ARG_QUANTITIES
local units, totals, zone_names, seat_zones = #seats / PAIR_BYTES, nil, nil, 0
if #seats % PAIR_BYTES ~= 0 or #quantities % PAIR_BYTES ~= 0 or #seats + #quantities == 0 then
  well_formed = false
elseif #seats > MAX_PAIR_BYTES or #quantities > MAX_PAIR_BYTES then
  units = MAX_UNITS + 1
elseif well_formed then
  if #seats == 0 then
    totals, zone_names = {}, {}
  else
    -- Most calls ask for one seat, and should pay for no more tables than one seat needs.
    local zone, ordinal = struct.unpack(PAIR, seats)
    totals, zone_names, seat_zones = { [zone] = 1 }, { zone }, 1
    if #seats > PAIR_BYTES then
      local seen = { [ordinal] = true }
      for at = PAIR_BYTES + 1, #seats, PAIR_BYTES do
        zone, ordinal = struct.unpack(PAIR, seats, at)
        if seen[ordinal] then
          well_formed = false
        end
        seen[ordinal] = true
        if not totals[zone] then
          seat_zones, totals[zone] = seat_zones + 1, 0
          zone_names[seat_zones] = zone
        end
        totals[zone] = totals[zone] + 1
      end
    end
  end
  for at = 1, #quantities, PAIR_BYTES do
    local zone, quantity = struct.unpack(PAIR, quantities, at)
    if totals[zone] or quantity == 0 then
      well_formed = false
    end
    zone_names[#zone_names + 1], totals[zone], units = zone, quantity, units + quantity
  end
end
