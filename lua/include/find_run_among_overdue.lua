-- @include read_record
-- Looks again for `run` as if the seats of overdue holds (at most 64) were free, and notes those holds as due if that
-- helps.
local MAX_OVERDUE = 64
local overdue = call('ZRANGEBYSCORE', KEY_EXPIRY, '-inf', now_ms, 'LIMIT', 0, MAX_OVERDUE)
if #overdue > 0 then
  local records, freed = call('HMGET', KEY_HOLDS, unpack(overdue)), {}
  for i = 1, #records do
    local hold = read_record(records[i])
    for at = 1, #hold.seats, PAIR_BYTES do
      local _, ordinal = struct.unpack(PAIR, hold.seats, at)
      if ordinal >= first and ordinal <= last then
        freed[#freed + 1] = ordinal
      end
    end
  end
  table.sort(freed)
  local stretch, pieces, from = call('GETRANGE', KEY_MAP, first, last), {}, 1
  for i = 1, #freed do
    pieces[2 * i - 1], pieces[2 * i] = string.sub(stretch, from, freed[i] - first), '.'
    from = freed[i] - first + 2
  end
  pieces[#pieces + 1] = string.sub(stretch, from)
  local found = string.find(table.concat(pieces), wanted, 1, true)
  if found then
    run = first + found - 1
    for i = 1, #overdue do
      due_ids[i], due_seen[overdue[i]] = overdue[i], true
    end
  end
end
