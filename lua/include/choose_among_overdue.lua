-- @include read_record
-- @include paired_seat
-- Chooses again as if the seats of overdue holds (at most 64) were free, in all the zones, also in those that lack
-- room: `chosen` and `clusters`, and those holds as due. Wheelchair and companion seats are not for everybody.
local MAX_OVERDUE = 64
local overdue = call('ZRANGEBYSCORE', KEY_EXPIRY, '-inf', now_ms, 'LIMIT', 0, MAX_OVERDUE)
if #overdue > 0 or short ~= '' then
  local freed, has_paired_seats = {}, call('HEXISTS', KEY_COUNTS, 'access') == 1
  if #overdue > 0 then
    local records = call('HMGET', KEY_HOLDS, unpack(overdue))
    for i = 1, #records do
      local hold = read_record(records[i])
      for at = 1, #hold.seats, PAIR_BYTES do
        local _, ordinal = struct.unpack(PAIR, hold.seats, at)
        if not has_paired_seats or not paired_seat(ordinal) then
          freed[#freed + 1] = ordinal
        end
      end
    end
    table.sort(freed)
  end
  stretches = {}
  for i = 1, #zone_names do
    local first, last = firsts_of[i], lasts_of[i]
    local bytes, pieces, from = call('GETRANGE', KEY_MAP, first, last), {}, 1
    for j = 1, #freed do
      if freed[j] >= first and freed[j] <= last then
        pieces[#pieces + 1] = string.sub(bytes, from, freed[j] - first)
        pieces[#pieces + 1] = '.'
        from = freed[j] - first + 2
      end
    end
    pieces[#pieces + 1] = string.sub(bytes, from)
    stretches[i] = table.concat(pieces)
    local found = nil
    if ARG_CATEGORIES == '' then
      found = not chosen and clean_run(stretches[i], 1)
    else
      stretches[i] = leave_out_others(stretches[i], first)
      found = not chosen and clean_part(stretches[i])
    end
    if found then
      chosen, clusters = i, { found, units }
    end
  end
  if not chosen then
    chosen, clusters = choose_with_compromise(stretches)
  end
  if chosen then
    for i = 1, #clusters, 2 do
      clusters[i] = clusters[i] + firsts_of[chosen] - 1
    end
    for i = 1, #overdue do
      due_ids[i], due_seen[overdue[i]] = overdue[i], true
    end
  end
end
