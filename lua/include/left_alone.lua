-- How many seats are left alone if some that are free are taken from a place of a stretch of the map on. A comma is a
-- free seat that is not wanted; what is outside the stretch counts as taken.
local function left_alone(stretch, start, count)
  local alone, before, after = 0, string.byte(stretch, start - 1), string.byte(stretch, start + count)
  if start > 1 and (before == 46 or before == 44) then
    before = start > 2 and string.byte(stretch, start - 2)
    alone = (before == 46 or before == 44) and 0 or 1
  end
  if after == 46 or after == 44 then
    after = string.byte(stretch, start + count + 1)
    alone = (after == 46 or after == 44) and alone or alone + 1
  end
  return alone
end
