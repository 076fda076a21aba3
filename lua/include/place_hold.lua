-- Writes a hold of `seats` and `quantities`, `totals` by zone, that every check has allowed: the log entry, then the
-- record with its holders' lists, its end, its seats, and the counters of its zones, last read into `counts`. `orphans`
-- are the seats left alone, if the log is to say so.
local ends_ms = now_ms + ttl_ms
shard_seq = shard_seq + 1
local record = struct.pack(RECORD, ARG_USER, STATE_HELD, shard_seq, now_ms, ttl_ms, #seats / PAIR_BYTES,
  #quantities / PAIR_BYTES)
  .. seats .. quantities .. ARG_FINGERPRINT .. '\n' .. ARG_ADDRESS .. '\n' .. ARG_CART .. '\n\n'
local number = string.format('%d', shard_seq)
if orphans == '' then
  call('XADD', KEY_LOG, shard_epoch .. '-' .. number, 'op', 'hold', 'head', struct.pack(HEAD, now_ms, ARG_SCOPE),
    'holds', ARG_HOLD, 'body', record, 'meta', ARG_META)
else
  call('XADD', KEY_LOG, shard_epoch .. '-' .. number, 'op', 'hold', 'head', struct.pack(HEAD, now_ms, ARG_SCOPE),
    'holds', ARG_HOLD, 'body', record, 'meta', ARG_META, 'orphans', orphans)
end
call('SET', KEY_SEQ, number)
if follow_address then
  call('HSET', KEY_HOLDS, ARG_HOLD, record, user_field, (user_list or '') .. ARG_HOLD,
    address_field, (address_list or '') .. ARG_HOLD)
else
  call('HSET', KEY_HOLDS, ARG_HOLD, record, user_field, (user_list or '') .. ARG_HOLD)
end
call('ZADD', KEY_EXPIRY, string.format('%d', ends_ms), ARG_HOLD)
if #seats == PAIR_BYTES then
  local _, ordinal = struct.unpack(PAIR, seats)
  call('SETRANGE', KEY_MAP, ordinal, 'h')
  call('SETRANGE', KEY_OWNERS, ordinal * ID_BYTES, ARG_HOLD)
else
  -- @include write_seats
  write_seats(seats, 'h', ARG_HOLD)
end
for i = 1, #zone_names do
  local capacity, zone_seats, held, sold, blocked = struct.unpack(ZONE, counts[i + 1])
  held = held + totals[zone_names[i]]
  call('HSET', KEY_COUNTS, zone_names[i], struct.pack(ZONE, capacity, zone_seats, held, sold, blocked))
end
