-- @include layout
-- @include paired_seat
-- Notes who has taken the wheelchair seats among those of the pairs, for the companion seats that are kept for them.
-- What an earlier taker declined is forgotten.
local function note_takers(seats, user)
  for at = 1, #seats, PAIR_BYTES do
    local _, ordinal = struct.unpack(PAIR, seats, at)
    if string.sub(paired_seat(ordinal) or '', 1, 1) == 'w' then
      call('HSET', KEY_COUNTS, 'w' .. ordinal, user)
    end
  end
end
