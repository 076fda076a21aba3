-- @include best_start
-- Where, in a stretch with commas for free seats that are not wanted, the first `units` seats are that leave nobody
-- alone.
local function clean_part(stretch)
  local found = string.find(stretch, wanted, 1, true)
  while found do
    local after = string.find(stretch, '[^.]', found) or #stretch + 1
    local start, alone = best_start(stretch, found, after, units)
    if alone == 0 then
      return start
    end
    found = string.find(stretch, wanted, after, true)
  end
  return nil
end
