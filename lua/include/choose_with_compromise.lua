-- @include clean_run
-- @include best_start
-- Chooses seats in zones that have no block without a compromise, given by their stretches of the map (nil for those
-- left out): the zone's place and its clusters, as places in the stretch and lengths. First blocks that leave as few
-- alone as possible, in a row of which more than nine tenths are taken before others, which are given only unless
-- orphans are refused; then, unless groups stay together, clusters in neighbouring rows. Free seats that are not wanted
-- are commas in the stretches. engine/choosing.py has the same rules.
local function block_but_one(stretch)
  local best, fewest = nil, 3
  local first, after, at = 1, 0, 1
  local found = string.find(stretch, wanted, 1, true)
  while found do
    while after < found do
      first = after + 1
      after = string.find(stretch, '|', first, true) or #stretch + 1
    end
    -- A shorter row is not so full with these seats free.
    if after - first > 10 * (units + 1) then
      local _, free = string.gsub(string.sub(stretch, first, after - 1), '[.,]', '')
      if 10 * free < after - first then
        return found
      end
    end
    -- Fewer than one cannot be: whatever leaves nobody alone was looked for before.
    at = after
    if fewest > 1 then
      at = string.find(stretch, '[^.]', found) or #stretch + 1
      local start, alone = best_start(stretch, found, at, units)
      if alone < fewest then
        best, fewest = start, alone
      end
    end
    found = string.find(stretch, wanted, at, true)
  end
  return orphans_refused == 0 and best or nil
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
