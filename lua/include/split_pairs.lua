-- @include layout
-- Splits packed pairs into a list of { zone, value, bytes }; nil for a broken length, more than `limit` pairs, or the
-- same zone (unique_part 1) or value (unique_part 2) twice.
local function split_pairs(packed, limit, unique_part)
  if #packed % PAIR_BYTES ~= 0 or #packed > limit * PAIR_BYTES then
    return nil
  end
  local list, seen = {}, {}
  for at = 1, #packed, PAIR_BYTES do
    local zone, value = struct.unpack(PAIR, packed, at)
    local pair = { zone, value, string.sub(packed, at, at + PAIR_BYTES - 1) }
    if seen[pair[unique_part]] then
      return nil
    end
    list[#list + 1], seen[pair[unique_part]] = pair, true
  end
  return list
end
