-- @include read_record
-- Takes the seats the user holds already out of the wish, and out of what its zones lack; if nothing is left, the hold
-- that has them is the answer.
local others, own_units, still_short = {}, {}, ''
for at = 1, #seats, PAIR_BYTES do
  if own_seats[at] then
    local zone = struct.unpack(PAIR, seats, at)
    totals[zone], units = totals[zone] - 1, units - 1
    own_units[zone] = (own_units[zone] or 0) + 1
  else
    others[#others + 1] = string.sub(seats, at, at + PAIR_BYTES - 1)
  end
end
if units == 0 then
  local hold = read_record(call('HGET', KEY_HOLDS, own_hold))
  local own_ends_ms = tonumber(call('ZSCORE', KEY_EXPIRY, own_hold))
  return { ALREADY_HELD, own_hold, own_ends_ms, now_ms, hold.seq, hold.seats, hold.quantities }
end
for at = 1, #short, PAIR_BYTES do
  local zone, lacking = struct.unpack(PAIR, short, at)
  lacking = lacking - (own_units[zone] or 0)
  if totals[zone] > 0 and lacking > 0 then
    still_short = still_short .. struct.pack(PAIR, zone, lacking)
  end
end
seats, short = table.concat(others), still_short
