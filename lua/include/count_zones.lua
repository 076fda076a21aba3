-- @include layout
-- Adds the units of the pairs to `totals`, by zone: one for a seat, as many as it says for a quantity.
local function count_zones(totals, seats, quantities)
  for at = 1, #seats, PAIR_BYTES do
    local zone = struct.unpack(PAIR, seats, at)
    totals[zone] = (totals[zone] or 0) + 1
  end
  for at = 1, #quantities, PAIR_BYTES do
    local zone, quantity = struct.unpack(PAIR, quantities, at)
    totals[zone] = (totals[zone] or 0) + quantity
  end
  return totals
end
