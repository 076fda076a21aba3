-- @include read_record
-- @include paired_seat
-- Refuses when the user would hold more wheelchair seats, with those in `wheelchairs`, than one booking may have.
local most, have = string.byte(call('HGET', KEY_COUNTS, 'access'), 2), #wheelchairs
local listed_ids = {}
for from = 1, most > 0 and #(user_list or '') or 0, ID_BYTES do
  listed_ids[#listed_ids + 1] = string.sub(user_list, from, from + ID_BYTES - 1)
end
if #listed_ids > 0 then
  local records, scores = call('HMGET', KEY_HOLDS, unpack(listed_ids)), call('ZMSCORE', KEY_EXPIRY, unpack(listed_ids))
  for i = 1, #listed_ids do
    local held_seats = records[i] and tonumber(scores[i] or 0) > now_ms and read_record(records[i]).seats or ''
    for at = 1, #held_seats, PAIR_BYTES do
      local _, ordinal = struct.unpack(PAIR, held_seats, at)
      local paired = paired_seat(ordinal)
      have = have + (paired and string.sub(paired, 1, 1) == 'w' and 1 or 0)
    end
  end
end
if most > 0 and have > most then
  return { WHEELCHAIR_LIMIT_EXCEEDED, '', 0, now_ms, 0, table.concat(wheelchairs), '' }
end
