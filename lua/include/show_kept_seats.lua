-- @include kept_from
-- Shows the companion seats that are kept for somebody as 'c' in `map`. `config` has the fields of `counts` that are no
-- zones, and with them the companion seats.
local kept, pieces, from = {}, {}, 1
for field, paired in pairs(config) do
  local ordinal = string.sub(paired, 1, 1) == 'a' and tonumber(string.match(field, '^s(%d+)$'))
  if ordinal and string.sub(map, ordinal + 1, ordinal + 1) == 'a' and kept_from('', paired, {}) then
    kept[#kept + 1] = ordinal
  end
end
table.sort(kept)
for i = 1, #kept do
  pieces[#pieces + 1] = string.sub(map, from, kept[i])
  pieces[#pieces + 1] = 'c'
  from = kept[i] + 2
end
pieces[#pieces + 1] = string.sub(map, from)
map = table.concat(pieces)
