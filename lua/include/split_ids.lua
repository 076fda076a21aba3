-- @include layout
-- Splits ids joined without a separator into a list; nil for a broken length, more than `limit` ids, or an id given
-- twice.
local function split_ids(joined, limit)
  if #joined % ID_BYTES ~= 0 or #joined > ID_BYTES * limit then
    return nil
  end
  local ids, seen = {}, {}
  for from = 1, #joined, ID_BYTES do
    local id = string.sub(joined, from, from + ID_BYTES - 1)
    if seen[id] then
      return nil
    end
    ids[#ids + 1], seen[id] = id, true
  end
  return ids
end
