-- @include clean_run
-- Chooses seats in zones that have no block without a compromise, given by their stretches of the map (nil for those
-- left out): the zone's place and its clusters, as places in the stretch and lengths. First blocks that leave one seat
-- alone, in a row of which more than nine tenths are taken before others, which are given only unless orphans are
-- refused; then, unless groups stay together, clusters in neighbouring rows. engine/choosing.py has the same rules.
local function block_but_one(stretch)
  local one_more = wanted .. '.'
  local found = string.find(stretch, one_more, 1, true)
  local any = found
  local first, after = 1, 0
  while found do
    while after < found do
      first = after + 1
      after = string.find(stretch, '|', first, true) or #stretch + 1
    end
    -- A shorter row is not so full with these seats free.
    if after - first > 10 * (units + 1) then
      local _, free = string.gsub(string.sub(stretch, first, after - 1), '%.', '')
      if 10 * free < after - first then
        return found
      end
    end
    found = string.find(stretch, one_more, after, true)
  end
  return orphans_refused == 0 and any or nil
end

local function choose_with_compromise(stretches)
  for i = 1, #zone_names do
    local found = stretches[i] and block_but_one(stretches[i])
    if found then
      return i, { found, units }
    end
  end
  if split_rows > 0 and units > 1 then
    -- @include split_group
    for i = 1, #zone_names do
      local clusters = stretches[i] and split_group(stretches[i])
      if clusters then
        return i, clusters
      end
    end
  end
  return nil, nil
end
