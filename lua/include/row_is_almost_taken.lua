-- Whether more than nine tenths of the row of a seat are taken. `freed` as in include/find_orphans.lua.
local STEP_BYTES = 512
local function row_is_almost_taken(ordinal, freed)
  local before, from, part, piece = '', ordinal, '', ''
  while from > 0 and #piece == #part do
    local earlier = math.max(0, from - STEP_BYTES)
    part = call('GETRANGE', KEY_MAP, earlier, from - 1)
    piece = string.match(part, '[^|]*$')
    before, from = piece .. before, earlier
  end
  local row, to = before, ordinal
  repeat
    part = call('GETRANGE', KEY_MAP, to, to + STEP_BYTES - 1)
    piece = string.match(part, '^[^|]*')
    row, to = row .. piece, to + STEP_BYTES
  until #piece < STEP_BYTES
  local _, free = string.gsub(row, '%.', '')
  local first = ordinal - #before
  for each in pairs(freed) do
    if each >= first and each < first + #row then
      free = free + 1
    end
  end
  return 10 * free < #row
end
