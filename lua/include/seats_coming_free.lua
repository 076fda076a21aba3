-- @include read_record
-- @include paired_seat
-- The ordinals of the seats that holds past their time will give back in this call, as a set. The map still has them
-- as taken. Wheelchair and companion seats are left out: they are nobody's neighbours.
local function seats_coming_free(ids)
  local freed = {}
  for _, record in ipairs(#ids > 0 and call('HMGET', KEY_HOLDS, unpack(ids)) or {}) do
    local hold_seats = read_record(record).seats
    for at = 1, #hold_seats, PAIR_BYTES do
      local _, ordinal = struct.unpack(PAIR, hold_seats, at)
      freed[ordinal] = not paired_seat(ordinal) or nil
    end
  end
  return freed
end
