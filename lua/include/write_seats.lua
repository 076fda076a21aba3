-- @include layout
-- @include stretches
-- Writes `byte` into the map for every seat of the pairs, neighbours in one step; with an owner (a hold id) also the
-- owner of each. A freed seat keeps its last owner, which the byte in the map makes meaningless.
local function write_seats(seats, byte, owner)
  local firsts, lengths = stretches(seats)
  for i = 1, #firsts do
    call('SETRANGE', KEY_MAP, firsts[i], string.rep(byte, lengths[i]))
    if owner then
      call('SETRANGE', KEY_OWNERS, firsts[i] * ID_BYTES, string.rep(owner, lengths[i]))
    end
  end
end
