-- The seats of the pairs that cannot be had again because they are held, sold or blocked. A hold past its time on one of
-- them is no loss: it goes to `due_ids`.
local due_ids, due_seen = {}, {}
local function find_lost_seats(seats)
  local lost = {}
  for at = 1, #seats, PAIR_BYTES do
    local _, ordinal = struct.unpack(PAIR, seats, at)
    local byte = call('GETRANGE', KEY_MAP, ordinal, ordinal)
    local owner = byte == 'h' and call('GETRANGE', KEY_OWNERS, ordinal * ID_BYTES, ordinal * ID_BYTES + ID_BYTES - 1)
    if owner and tonumber(call('ZSCORE', KEY_EXPIRY, owner)) <= now_ms then
      if not due_seen[owner] then
        due_ids[#due_ids + 1], due_seen[owner] = owner, true
      end
    elseif byte ~= '.' then
      lost[#lost + 1] = string.sub(seats, at, at + PAIR_BYTES - 1)
    end
  end
  return table.concat(lost)
end
