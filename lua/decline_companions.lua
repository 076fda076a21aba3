#!lua
-- Lets go of the companion seats that are kept for the buyer of wheelchair seats: they do not want them.
--
-- Guarantees: companion seats that the buyer holds stay held; declining again changes nothing; a refusal writes
-- nothing. What was declined stays declined until somebody takes the wheelchair seats anew.
--
-- Keys:
--   1 open   string  the fence: the epoch, while this shard serves it
--   2 seq    string  number of the last log entry
--   3 mark   string  number of the last log entry that is persisted
--   4 log    stream  every state change, in order
--   5 counts hash    configuration and the counters of each zone
--   6 holds  hash    hold id to record; 'u' and user, 'a' and address to the ids of their holds
--   7 expiry zset    live holds by the time they end, ms
-- Arguments:
--   1 scope bytes  organisation id and event id, 16 bytes each
--   2 meta  text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   3 user  bytes  id of the owner, 16 bytes
--   4 hold  bytes  id of the hold that has the wheelchair seats, or by which they were bought, 16 bytes
-- Reply:
--   1 status int    one of the statuses
--   2 now_ms int    the server's clock
--   3 seq    int    log entry that must be persisted before the reply is durable, 0 if none
--   4 seats  pairs  the wheelchair seats whose companions are no longer kept
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, hold_not_found, not_hold_owner, hold_released, hold_expired,
--   seat_not_found, repeated, done
-- Log: decline, with the wheelchair seats.
-- Cost: O(seats of the hold), at most 100.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '' }
end
if #ARG_SCOPE ~= 32 or #ARG_META > 4096 or #ARG_USER ~= ID_BYTES or #ARG_HOLD ~= ID_BYTES then
  return { INVALID_REQUEST, now_ms, 0, '' }
end
if call('EXISTS', KEY_COUNTS) == 0 then
  return { EVENT_NOT_FOUND, now_ms, 0, '' }
end
-- @include read_record
local stored = call('HGET', KEY_HOLDS, ARG_HOLD)
local hold = stored and read_record(stored)
if not hold then
  return { HOLD_NOT_FOUND, now_ms, 0, '' }
elseif hold.user ~= ARG_USER then
  return { NOT_HOLD_OWNER, now_ms, 0, '' }
elseif hold.state == STATE_RELEASED then
  return { HOLD_RELEASED, now_ms, 0, '' }
elseif hold.state == STATE_EXPIRED
  or hold.state == STATE_HELD and tonumber(call('ZSCORE', KEY_EXPIRY, ARG_HOLD)) <= now_ms then
  return { HOLD_EXPIRED, now_ms, 0, '' }
end
-- @include paired_seat
local wheelchairs, declined, fields = {}, 0, {}
for at = 1, #hold.seats, PAIR_BYTES do
  local _, ordinal = struct.unpack(PAIR, hold.seats, at)
  if string.sub(paired_seat(ordinal) or '', 1, 1) == 'w' then
    wheelchairs[#wheelchairs + 1] = string.sub(hold.seats, at, at + PAIR_BYTES - 1)
    declined = declined + (#call('HGET', KEY_COUNTS, 'w' .. ordinal) > ID_BYTES and 1 or 0)
    fields[#fields + 1], fields[#fields + 2] = 'w' .. ordinal, ARG_USER .. 'd'
  end
end
local seats = table.concat(wheelchairs)
if seats == '' then
  return { SEAT_NOT_FOUND, now_ms, 0, '' }
elseif declined == #wheelchairs then
  return { REPEATED, now_ms, hold.seq, seats }
end
-- @include append_log
-- @include pack_blocks
-- @include write_record
append_log('decline', ARG_HOLD, pack_blocks({ { seats = seats, quantities = '' } }))
hold.seq = shard_seq
call('HSET', KEY_HOLDS, ARG_HOLD, write_record(hold))
call('HSET', KEY_COUNTS, unpack(fields))
return { DONE, now_ms, shard_seq, seats }
