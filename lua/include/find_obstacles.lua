-- Looks at every seat asked for: `refusal` is the status that takes precedence, `in_the_way` the seats that cause it
-- and `lifts_ms` when the last of them may come free, which one that is sold never does. `own_hold` is a live hold by
-- which the user has some of the seats, `own_seats` the places of those in the list. A hold past its time is no
-- obstacle: it goes to `due_ids`. `wheelchairs` has the wheelchair seats that can be had, if any.
local NEVER_MS = -1
local in_the_way, own_hold, own_seats, due_ids, due_seen, wheelchairs = '', nil, nil, nil, nil, nil
for at = 1, #seats, PAIR_BYTES do
  local _, ordinal = struct.unpack(PAIR, seats, at)
  local byte = call('GETRANGE', KEY_MAP, ordinal, ordinal)
  if byte ~= '.' then
    local status, free_at_ms, comes_free = SEAT_NOT_FOUND, 0, byte == 'w' or byte == 'a'
    if byte == 's' or byte == 'b' then
      status, free_at_ms = SEAT_NOT_AVAILABLE, byte == 's' and NEVER_MS or 0
    elseif comes_free then
      status = nil
    elseif byte == 'h' then
      local owner = call('GETRANGE', KEY_OWNERS, ordinal * ID_BYTES, ordinal * ID_BYTES + ID_BYTES - 1)
      free_at_ms = tonumber(call('ZSCORE', KEY_EXPIRY, owner))
      if free_at_ms <= now_ms then
        due_ids, due_seen, status, comes_free = due_ids or {}, due_seen or {}, nil, true
        if not due_seen[owner] then
          due_seen[owner], due_ids[#due_ids + 1] = true, owner
        end
      elseif string.sub(call('HGET', KEY_HOLDS, owner), 1, ID_BYTES) == ARG_USER then
        own_hold, own_seats, status = own_hold or owner, own_seats or {}, nil
        own_seats[at] = true
      else
        status = SEAT_HELD_BY_ANOTHER_USER
      end
    end
    if comes_free then
      -- @include judge_paired_seat
    end
    if status and (not refusal or status < refusal) then
      refusal, in_the_way, lifts_ms = status, '', 0
    end
    if status and status == refusal then
      in_the_way = in_the_way .. string.sub(seats, at, at + PAIR_BYTES - 1)
      lifts_ms = math.min(lifts_ms, free_at_ms) < 0 and NEVER_MS or math.max(lifts_ms, free_at_ms)
    end
  end
end
