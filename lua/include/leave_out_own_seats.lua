-- @include read_record
-- Takes the seats the user holds already out of the wish; if nothing is left, the hold that has them is the answer.
local others = {}
for at = 1, #seats, PAIR_BYTES do
  if own_seats[at] then
    local zone = struct.unpack(PAIR, seats, at)
    totals[zone], units = totals[zone] - 1, units - 1
  else
    others[#others + 1] = string.sub(seats, at, at + PAIR_BYTES - 1)
  end
end
if units == 0 then
  local hold = read_record(call('HGET', KEY_HOLDS, own_hold))
  local own_ends_ms = tonumber(call('ZSCORE', KEY_EXPIRY, own_hold))
  return { ALREADY_HELD, own_hold, own_ends_ms, now_ms, hold.seq, hold.seats, hold.quantities }
end
seats = table.concat(others)
