-- @include append_log
-- @include read_record
-- @include write_record
-- @include free_seats
-- @include count_zones
-- @include move_units
-- @include negate
-- @include pack_blocks
-- @include note_free_runs
-- Ends live holds: logs them as one entry, frees their seats and units, and keeps their records until `forget_at_ms`.
-- `ids` and `records` run in parallel and have at least one hold; `ending` gives the operation, the reason and the
-- state.
local function end_holds(ids, records, ending, forget_at_ms)
  local holds, freed, freed_seats = {}, {}, {}
  for i = 1, #ids do
    holds[i] = read_record(records[i])
    count_zones(freed, holds[i].seats, holds[i].quantities)
    freed_seats[i] = holds[i].seats
  end
  append_log(ending.operation, table.concat(ids), pack_blocks(holds) .. ending.reason)

  local rewritten, forgotten, forget_at = {}, {}, string.format('%d', forget_at_ms)
  for i = 1, #ids do
    local hold = holds[i]
    hold.state, hold.seq = ending.state, shard_seq
    rewritten[2 * i - 1], rewritten[2 * i] = ids[i], write_record(hold)
    forgotten[2 * i - 1], forgotten[2 * i] = forget_at, ids[i]
  end
  call('HSET', KEY_HOLDS, unpack(rewritten))
  call('ZREM', KEY_EXPIRY, unpack(ids))
  call('ZADD', KEY_ENDED, unpack(forgotten))
  local seats = table.concat(freed_seats)
  free_seats(seats)
  note_free_runs(seats)
  move_units(negate(freed), {}, {})
end
