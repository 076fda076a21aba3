-- Finds the first `units` free seats in a row between the ordinals `first` and `last`: `run` is the ordinal of the
-- first of them, or nil. `hints` has, for runs of one to eight seats, an ordinal before which none starts: what an
-- earlier search has ruled out stays ruled out until a seat comes free. The map is read in growing blocks, because the
-- best seats are at the front.
local FIRST_BLOCK = 2048
local LARGEST_BLOCK = 65536
local HINTED_UNITS = 8
local wanted, run, from, block = string.rep('.', units), nil, first, FIRST_BLOCK
if hints then
  for length = 1, math.min(units, HINTED_UNITS) do
    from = math.max(from, (struct.unpack('>I4', hints, 4 * length - 3)))
  end
end
while not run and from + units - 1 <= last do
  local stretch = call('GETRANGE', KEY_MAP, from, math.min(from + block - 1, last))
  local found = string.find(stretch, wanted, 1, true)
  if found then
    run = from + found - 1
  elseif #stretch < units then
    break
  end
  from, block = from + #stretch - units + 1, math.min(block * 4, LARGEST_BLOCK)
end
