-- @include layout
-- Writes `byte` into the map for every seat of the pairs, neighbours in one step; with an owner (a hold id) also the
-- owner of each. A freed seat keeps its last owner, which the byte in the map makes meaningless.
local function write_seats(seats, byte, owner)
  local at, length = 1, #seats
  while at <= length do
    local _, first, following = struct.unpack(PAIR, seats, at)
    local run = 1
    while following <= length do
      local _, ordinal, after = struct.unpack(PAIR, seats, following)
      if ordinal ~= first + run then
        break
      end
      run, following = run + 1, after
    end
    call('SETRANGE', KEY_MAP, first, string.rep(byte, run))
    if owner then
      call('SETRANGE', KEY_OWNERS, first * ID_BYTES, string.rep(owner, run))
    end
    at = following
  end
end
