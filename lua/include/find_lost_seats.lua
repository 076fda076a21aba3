-- @include kept_from
-- @include paired_seat
-- The seats of the pairs that cannot be had again: they are held, sold or blocked, or an earlier call has named them. A
-- hold past its time on one of them is no loss, unless it is in `keeping`: it goes to `due_ids`. With a user, a
-- companion seat that is kept from them is lost, too.
local due_ids, due_seen, named, keeping = {}, {}, {}, {}
local function find_lost_seats(seats, user)
  local lost, asked = {}, {}
  for at = 1, user and #seats or 0, PAIR_BYTES do
    local _, ordinal = struct.unpack(PAIR, seats, at)
    asked[ordinal] = true
  end
  for at = 1, #seats, PAIR_BYTES do
    local _, ordinal = struct.unpack(PAIR, seats, at)
    local byte = call('GETRANGE', KEY_MAP, ordinal, ordinal)
    local owner = byte == 'h' and call('GETRANGE', KEY_OWNERS, ordinal * ID_BYTES, ordinal * ID_BYTES + ID_BYTES - 1)
    local is_due = owner and not keeping[owner] and tonumber(call('ZSCORE', KEY_EXPIRY, owner)) <= now_ms
    local is_free = byte == '.' or byte == 'w' or byte == 'a'
    local paired = user and byte ~= '.' and paired_seat(ordinal)
    local is_kept = paired and string.sub(paired, 1, 1) == 'a' and kept_from(user, paired, asked)
    if named[ordinal] or is_kept or not is_free and not is_due then
      lost[#lost + 1] = string.sub(seats, at, at + PAIR_BYTES - 1)
    elseif is_due and not due_seen[owner] then
      due_ids[#due_ids + 1], due_seen[owner] = owner, true
    end
    named[ordinal] = true
  end
  return table.concat(lost)
end
