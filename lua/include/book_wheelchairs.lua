-- @include append_log
-- @include kept_from
-- @include note_takers
-- @include pack_blocks
-- Completes a hold that has wheelchair seats: who took them and, where the audit wants it, a log entry with these seats
-- and the companion seats that are kept from now on.
local wheelchair_seats = table.concat(wheelchairs)
note_takers(wheelchair_seats, ARG_USER)
if string.byte(call('HGET', KEY_COUNTS, 'access'), 3) == 1 then
  local kept, seen = {}, {}
  for at = 1, #wheelchair_seats, PAIR_BYTES do
    local _, ordinal = struct.unpack(PAIR, wheelchair_seats, at)
    local companions = string.sub(paired_seat(ordinal), 2)
    for place = 1, #companions, PAIR_BYTES do
      local _, companion = struct.unpack(PAIR, companions, place)
      if not seen[companion] and call('GETRANGE', KEY_MAP, companion, companion) == 'a'
        and kept_from('', paired_seat(companion), {}) then
        seen[companion], kept[#kept + 1] = true, string.sub(companions, place, place + PAIR_BYTES - 1)
      end
    end
  end
  append_log('accessible', ARG_HOLD, pack_blocks({ { seats = wheelchair_seats, quantities = '' },
    { seats = table.concat(kept), quantities = '' } }))
end
