-- Forgets where the search for free seats may start, in every zone that units have come back to.
local function forget_hints(totals)
  local fields = {}
  for zone in pairs(totals) do
    fields[#fields + 1] = 'runs:' .. zone
  end
  call('HDEL', KEY_COUNTS, unpack(fields))
end
