-- Where, in a zone from one ordinal to another, the free seats next to each other begin that are nearest to a place in
-- the map, the earlier of two as near; with `clean` only those that leave nobody alone. Nil if there are none. Wider
-- and wider parts of the map around the place are looked at, whole rows of each, until no nearer block can be outside.
-- engine/choosing.py has the same rules.
local FIRST_REACH = 2048
local wanted = string.rep('.', units)

-- The start nearest to `goal` in a run of `length` seats from `found` on, or nil.
local function nearest_start(found, length, goal, clean)
  local slack = length - units
  local offset = math.max(0, math.min(slack, goal - found))
  for away = 0, 2 do
    for _, each in ipairs({ offset - away, offset + away }) do
      if each >= 0 and each <= slack and not (clean and (each == 1 or slack - each == 1)) then
        return found + each
      end
    end
  end
  return nil
end

local function nearest_block(first, last, place, clean)
  local reach = FIRST_REACH
  while true do
    local from, to = math.max(first, place - reach), math.min(last, place + reach)
    local bytes, goal = call('GETRANGE', KEY_MAP, from, to), place - from + 1
    local low = from == first and 1 or (string.find(bytes, '|', 1, true) or #bytes) + 1
    local high = to == last and #bytes or (string.match(bytes, '.*()|') or 1) - 1
    local best, distance, at = nil, nil, low
    while at <= high do
      local found = string.find(bytes, wanted, at, true)
      if not found or found > high then
        break
      end
      local after = string.find(bytes, '[^.]', found) or #bytes + 1
      local start = nearest_start(found, after - found, goal, clean)
      if start and (not best or math.abs(start - goal) < distance) then
        best, distance = start, math.abs(start - goal)
      end
      if best and after > goal + distance then
        break
      end
      at = after
    end
    local is_nearest = best and (from == first or distance <= goal - low) and (to == last or distance <= high - goal)
    if is_nearest or from == first and to == last then
      return best and from + best - 1
    end
    reach = 4 * reach
  end
end
