-- @include read_record
-- @include paired_seat
-- Finds the first free wheelchair seat with enough free companion seats, in zones that have room for them: `chosen` is
-- the place of the zone in `zone_names`, `seats` the pairs and `wheelchairs` the wheelchair seat of them. Companion
-- seats are never kept from whoever asks for their wheelchair seat. If there is none, it looks as if the seats of
-- overdue holds (at most 64) were free, in all the zones, and has those holds as due.
local MAX_OVERDUE = 64
local chosen, seats, wheelchairs, due_ids, due_seen = nil, nil, nil, {}, {}
local function wheelchair_seat_in(i, stretch)
  local at = string.find(stretch, 'w', 1, true)
  while at do
    local first = firsts_of[i]
    local found = { struct.pack(PAIR, zone_names[i], first + at - 1) }
    local paired = paired_seat(first + at - 1)
    for place = 2, #paired, PAIR_BYTES do
      local _, companion = struct.unpack(PAIR, paired, place)
      local there = companion - first + 1
      if #found < units and string.sub(stretch, there, there) == 'a' then
        found[#found + 1] = string.sub(paired, place, place + PAIR_BYTES - 1)
      end
    end
    if #found == units then
      chosen, wheelchairs = i, { found[1] }
      table.sort(found)
      seats = table.concat(found)
      return
    end
    at = string.find(stretch, 'w', at + 1, true)
  end
end

for i = 1, seat_zones do
  local capacity, zone_seats, held, sold, blocked = struct.unpack(ZONE, counts[i + 1])
  if not chosen and math.min(capacity, zone_seats - blocked) - held - sold >= units then
    wheelchair_seat_in(i, call('GETRANGE', KEY_MAP, firsts_of[i], lasts_of[i]))
  end
end
local overdue = chosen and {} or call('ZRANGEBYSCORE', KEY_EXPIRY, '-inf', now_ms, 'LIMIT', 0, MAX_OVERDUE)
if not chosen and (#overdue > 0 or short ~= '') then
  local freed, byte_of = {}, {}
  for _, record in ipairs(#overdue > 0 and call('HMGET', KEY_HOLDS, unpack(overdue)) or {}) do
    local held_seats = read_record(record).seats
    for at = 1, #held_seats, PAIR_BYTES do
      local _, ordinal = struct.unpack(PAIR, held_seats, at)
      freed[#freed + 1], byte_of[ordinal] = ordinal, string.sub(paired_seat(ordinal) or '.', 1, 1)
    end
  end
  table.sort(freed)
  for i = 1, seat_zones do
    local bytes, pieces, from = call('GETRANGE', KEY_MAP, firsts_of[i], lasts_of[i]), {}, 1
    for _, ordinal in ipairs(freed) do
      if ordinal >= firsts_of[i] and ordinal <= lasts_of[i] then
        pieces[#pieces + 1] = string.sub(bytes, from, ordinal - firsts_of[i]) .. byte_of[ordinal]
        from = ordinal - firsts_of[i] + 2
      end
    end
    if not chosen then
      wheelchair_seat_in(i, table.concat(pieces) .. string.sub(bytes, from))
    end
  end
  for i = 1, chosen and #overdue or 0 do
    due_ids[i], due_seen[overdue[i]] = overdue[i], true
  end
end
