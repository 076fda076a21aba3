-- @include write_seats
-- @include paired_seat
-- Writes into the map that the seats of the pairs are free, each with the byte that it has while it is. Only an event
-- with wheelchair or companion seats has `access`, and seats whose byte is another than '.'.
local function free_seats(seats)
  write_seats(seats, '.')
  if seats ~= '' and call('HEXISTS', KEY_COUNTS, 'access') == 1 then
    for at = 1, #seats, PAIR_BYTES do
      local _, ordinal = struct.unpack(PAIR, seats, at)
      local paired = paired_seat(ordinal)
      if paired then
        call('SETRANGE', KEY_MAP, ordinal, string.sub(paired, 1, 1))
      end
    end
  end
end
