-- Where, from a place of a stretch of the map on, the first run begins that can give `units` seats and leaves none
-- alone: it has so many seats, or at least two more. Nil if there is none. The place must not be within a run.
local FREE = 46
local wanted = string.rep('.', units)
local function clean_run(stretch, at)
  while true do
    local found = string.find(stretch, wanted, at, true)
    if not found or string.byte(stretch, found + units) ~= FREE
      or string.byte(stretch, found + units + 1) == FREE then
      return found
    end
    at = found + units + 1
  end
end
