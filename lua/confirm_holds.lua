#!lua
-- Sells what holds have, all or nothing, once a payment has succeeded.
--
-- Guarantees: a seat is sold at most once, also when two of the holds had it one after the other; the same sale
-- repeated changes nothing; what a checkout took is sold by the sale of its name only; a hold that expired is sold if
-- every seat and unit of it can be had again, and otherwise nothing is sold and the reply says what was lost.
--
-- Keys:
--   1 open   string  the fence: the epoch, while this shard serves it
--   2 seq    string  number of the last log entry
--   3 mark   string  number of the last log entry that is persisted
--   4 log    stream  every state change, in order
--   5 counts hash    configuration and the counters of each zone
--   6 map    string  one byte per seat
--   7 owners string  sixteen bytes per seat: the hold that has it
--   8 holds  hash    hold id to record; 'u' and user, 'a' and address to the ids of their holds
--   9 expiry zset    live holds by the time they end, ms
--   10 ended  zset    ended holds by the time they may be forgotten, ms
-- Arguments:
--   1 scope        bytes  organisation id and event id, 16 bytes each
--   2 meta         text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   3 sale         text   names the sale, so that a repeat is recognised, 1 to 64 bytes, no newline
--   4 user         bytes  id of the owner, 16 bytes; empty for any
--   5 retention_ms int    ms that ended holds stay on record, up to 30 days
--   6 holds        bytes  ids of the holds, 16 bytes each, 1 to 50
-- Reply:
--   1 status     int    one of the statuses
--   2 now_ms     int    the server's clock
--   3 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   4 outcomes   bytes  one status per hold, a byte each
--   5 seats      pairs  the seats sold; for seats_lost the seats that others have
--   6 quantities pairs  the quantities sold; for seats_lost the zones short of room and by how many units
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, event_unavailable, hold_not_found, not_hold_owner, hold_released,
--   hold_sold, hold_in_checkout, seats_lost, repeated, done
-- Log: expire for overdue holds on what is taken again, then sell.
-- Cost: O(units of the holds), at most 50 holds, the holds on their seats and 64 overdue ones.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '', '', '' }
end
-- @include integer
-- @include end_holds
-- @include read_holds
local MAX_RETENTION_MS = 2592000000
local retention_ms = integer(ARG_RETENTION_MS, 0, MAX_RETENTION_MS)
if not ids or not retention_ms or #ARG_SCOPE ~= 32 or #ARG_META > 4096 or #ARG_SALE == 0 or #ARG_SALE > 64
  or string.find(ARG_SALE, '\n', 1, true) or ARG_USER ~= '' and #ARG_USER ~= ID_BYTES then
  return { INVALID_REQUEST, now_ms, 0, '', '', '' }
end
local event_state = call('HGET', KEY_COUNTS, 'state')
if not event_state then
  return { EVENT_NOT_FOUND, now_ms, 0, '', '', '' }
elseif event_state == 'cancelled' then
  return { EVENT_UNAVAILABLE, now_ms, 0, '', '', '' }
end

-- @include find_lost_seats
-- @include note_takers
local outcomes, origins, from_held, taken_again, sold_units, last_seq = {}, {}, {}, {}, {}, 0
local lost_seats, to_sell = {}, {}
for i = 1, #ids do
  keeping[ids[i]] = true
end
for i = 1, #ids do
  local hold = holds[i]
  outcomes[i] = DONE
  if not hold then
    outcomes[i] = HOLD_NOT_FOUND
  elseif ARG_USER ~= '' and hold.user ~= ARG_USER then
    outcomes[i] = NOT_HOLD_OWNER
  elseif hold.state == STATE_RELEASED then
    outcomes[i] = HOLD_RELEASED
  elseif hold.state == STATE_SOLD then
    outcomes[i] = hold.checkout == ARG_SALE and REPEATED or HOLD_SOLD
    last_seq = math.max(last_seq, hold.seq)
  elseif hold.checkout ~= '' and hold.checkout ~= ARG_SALE then
    outcomes[i] = HOLD_IN_CHECKOUT
  else
    origins[#origins + 1], to_sell[#to_sell + 1] = hold.state, i
    if hold.state == STATE_EXPIRED then
      local lost = find_lost_seats(hold.seats, hold.user)
      outcomes[i] = lost ~= '' and SEATS_LOST or DONE
      lost_seats[#lost_seats + 1] = lost
      count_zones(taken_again, hold.seats, hold.quantities)
    else
      count_zones(from_held, hold.seats, hold.quantities)
    end
    count_zones(sold_units, hold.seats, hold.quantities)
  end
end

-- @include refuse_first
-- @include pack_bytes
local refusal = refuse_first(outcomes,
  { HOLD_NOT_FOUND, NOT_HOLD_OWNER, HOLD_RELEASED, HOLD_SOLD, HOLD_IN_CHECKOUT })
if refusal then
  return { refusal, now_ms, 0, pack_bytes(outcomes), '', '' }
end
local MAX_OVERDUE = 64
local due_records = #due_ids > 0 and call('HMGET', KEY_HOLDS, unpack(due_ids)) or {}
-- @include lacking_units
local lacking = lacking_units(taken_again, due_records)
if lacking ~= '' then
  for _, id in ipairs(call('ZRANGEBYSCORE', KEY_EXPIRY, '-inf', now_ms, 'LIMIT', 0, MAX_OVERDUE)) do
    if not due_seen[id] and not keeping[id] then
      due_ids[#due_ids + 1] = id
    end
  end
  due_records = #due_ids > 0 and call('HMGET', KEY_HOLDS, unpack(due_ids)) or {}
  lacking = lacking_units(taken_again, due_records)
end
if lacking ~= '' or refuse_first(outcomes, { SEATS_LOST }) then
  return { SEATS_LOST, now_ms, 0, pack_bytes(outcomes), table.concat(lost_seats), lacking }
elseif #to_sell == 0 then
  return { REPEATED, now_ms, last_seq, pack_bytes(outcomes), '', '' }
end

if #due_ids > 0 then
  local expiry = { operation = 'expire', reason = 'ttl_expired', state = STATE_EXPIRED }
  end_holds(due_ids, due_records, expiry, now_ms + retention_ms)
end
local sold_ids, sold, seats, quantities = {}, {}, {}, {}
for i, index in ipairs(to_sell) do
  sold_ids[i], sold[i] = ids[index], holds[index]
  seats[i], quantities[i] = sold[i].seats, sold[i].quantities
end
append_log('sell', table.concat(sold_ids), pack_blocks(sold) .. table.concat(origins) .. '\n' .. ARG_SALE)
local has_wheelchairs = call('HEXISTS', KEY_COUNTS, 'access') == 1
for i, hold in ipairs(sold) do
  if has_wheelchairs and hold.state == STATE_EXPIRED then
    note_takers(hold.seats, hold.user)
  end
  hold.state, hold.seq, hold.checkout = STATE_SOLD, shard_seq, ARG_SALE
  call('HSET', KEY_HOLDS, sold_ids[i], write_record(hold))
  call('ZREM', KEY_EXPIRY, sold_ids[i])
  call('ZADD', KEY_ENDED, string.format('%d', now_ms + retention_ms), sold_ids[i])
  write_seats(hold.seats, 's', sold_ids[i])
end
move_units(negate(from_held), sold_units, {})
return { DONE, now_ms, shard_seq, pack_bytes(outcomes), table.concat(seats), table.concat(quantities) }
