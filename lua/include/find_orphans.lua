-- @include stretches
-- @include row_is_almost_taken
-- The seats that taking those of the pairs leaves alone: all of them, and those that their row does not excuse, as
-- pairs. `freed` has the ordinals that count as free whatever the map says. A seat that was alone before is not left
-- alone. engine/choosing.py has the same rules.
local function find_orphans(seats, freed)
  local zone_of, zone_beside, orphans = {}, {}, {}
  for at = 1, #seats, PAIR_BYTES do
    local zone, ordinal = struct.unpack(PAIR, seats, at)
    zone_of[ordinal] = zone
  end
  local firsts, lengths = stretches(seats)
  for i = 1, #firsts do
    local first, last = firsts[i], firsts[i] + lengths[i] - 1
    local from = math.max(0, first - 2)
    local around = call('GETRANGE', KEY_MAP, from, last + 2)
    for _, side in ipairs({ { first, -1 }, { last, 1 } }) do
      local taken, beside, behind = side[1], side[1] + side[2], side[1] + 2 * side[2]
      local function is_free(ordinal)
        return freed[ordinal] or string.byte(around, ordinal - from + 1) == 46
      end
      if is_free(taken) and is_free(beside) and not zone_of[beside] and not zone_beside[beside]
        and (zone_of[behind] or not is_free(behind)) then
        zone_beside[beside], orphans[#orphans + 1] = zone_of[taken], beside
      end
    end
  end
  table.sort(orphans)
  local all, unexcused = {}, {}
  for i = 1, #orphans do
    all[i] = struct.pack(PAIR, zone_beside[orphans[i]], orphans[i])
    if not row_is_almost_taken(orphans[i], freed) then
      unexcused[#unexcused + 1] = all[i]
    end
  end
  return table.concat(all), table.concat(unexcused)
end
