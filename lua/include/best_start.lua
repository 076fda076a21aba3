-- @include left_alone
-- Of `count` seats from a part of a stretch, where the first should be so that as few as possible are left alone, and
-- how many are. Only next to the ends of a run is anybody left alone: of three places one leaves nobody.
local function best_start(stretch, first, after, count)
  local best, fewest = nil, 3
  for start = first, math.min(first + 2, after - count) do
    local alone = left_alone(stretch, start, count)
    if alone < fewest then
      best, fewest = start, alone
    end
  end
  return best, fewest
end
