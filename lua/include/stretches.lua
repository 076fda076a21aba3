-- @include layout
-- The seats of the pairs as stretches of neighbours in the map: the first ordinal of each, and how many seats it has.
local function stretches(seats)
  local firsts, lengths, at = {}, {}, 1
  while at <= #seats do
    local _, first, following = struct.unpack(PAIR, seats, at)
    local length = 1
    while following <= #seats do
      local _, ordinal, after = struct.unpack(PAIR, seats, following)
      if ordinal ~= first + length then
        break
      end
      length, following = length + 1, after
    end
    firsts[#firsts + 1], lengths[#lengths + 1], at = first, length, following
  end
  return firsts, lengths
end
