#!lua
-- Gives holds more time, all or none, to their owner only.
--
-- Guarantees: no hold outlives its creation by more than the total; repeating the last key changes nothing. A checkout
-- extends a hold only once and keeps it: no other checkout takes it, and its owner cannot extend it. A refusal writes
-- nothing.
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
--   1 scope        bytes  organisation id and event id, 16 bytes each
--   2 meta         text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   3 user         bytes  id of the owner, 16 bytes
--   4 key          text   names this request, so that a repeat does not extend again, 1 to 64 bytes, no newline
--   5 extension_ms int    ms to add, 1 to 86,400,000
--   6 total_ms     int    most ms from creation to end, up to 86,400,000
--   7 checkout     text   checkout that takes the holds, up to 64 bytes, no newline; may be empty
--   8 holds        bytes  ids of the holds, 16 bytes each, 1 to 50
-- Reply:
--   1 status   int    one of the statuses
--   2 now_ms   int    the server's clock
--   3 seq      int    log entry that must be persisted before the reply is durable, 0 if none
--   4 outcomes bytes  one status per hold, a byte each
--   5 ends_ms  bytes  when each hold ends, 8 bytes each
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, hold_not_found, not_hold_owner, hold_sold, hold_released, hold_expired,
--   hold_in_checkout, repeated, extension_limit, done
-- Log: extend, with the new end of each hold.
-- Cost: O(holds), at most 50.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '', '' }
end
-- @include integer
-- @include read_holds
local MAX_MS = 86400000
local extension_ms, total_ms = integer(ARG_EXTENSION_MS, 1, MAX_MS), integer(ARG_TOTAL_MS, 1, MAX_MS)
if not ids or not extension_ms or not total_ms or #ARG_SCOPE ~= 32 or #ARG_USER ~= ID_BYTES or #ARG_META > 4096
  or #ARG_KEY == 0 or #ARG_KEY > 64 or #ARG_CHECKOUT > 64 or string.find(ARG_KEY .. ARG_CHECKOUT, '\n', 1, true) then
  return { INVALID_REQUEST, now_ms, 0, '', '' }
end
if call('EXISTS', KEY_COUNTS) == 0 then
  return { EVENT_NOT_FOUND, now_ms, 0, '', '' }
end

local outcomes, new_ends, repeated, moved, last_seq = {}, {}, 0, 0, 0
for i = 1, #ids do
  local hold = holds[i]
  outcomes[i], new_ends[i] = DONE, ends[i]
  if not hold then
    outcomes[i] = HOLD_NOT_FOUND
  elseif hold.user ~= ARG_USER then
    outcomes[i] = NOT_HOLD_OWNER
  elseif hold.state == STATE_SOLD then
    outcomes[i] = HOLD_SOLD
  elseif hold.state == STATE_RELEASED then
    outcomes[i] = HOLD_RELEASED
  elseif ends[i] <= now_ms then
    outcomes[i] = HOLD_EXPIRED
  elseif hold.checkout ~= '' and hold.checkout ~= ARG_CHECKOUT then
    outcomes[i] = HOLD_IN_CHECKOUT
  elseif hold.extension == ARG_KEY then
    repeated, last_seq = repeated + 1, math.max(last_seq, hold.seq)
  elseif ARG_CHECKOUT == '' or hold.checkout == '' then
    new_ends[i] = math.max(ends[i], math.min(ends[i] + extension_ms, hold.created_ms + total_ms))
    moved = moved + (new_ends[i] > ends[i] and 1 or 0)
  end
end

local packed_ends = {}
for i = 1, #ids do
  packed_ends[i] = struct.pack('>I8', new_ends[i])
end
-- @include refuse_first
-- @include pack_bytes
local refusal = refuse_first(outcomes,
  { HOLD_NOT_FOUND, NOT_HOLD_OWNER, HOLD_SOLD, HOLD_RELEASED, HOLD_EXPIRED, HOLD_IN_CHECKOUT })
if refusal then
  return { refusal, now_ms, 0, pack_bytes(outcomes), '' }
elseif repeated == #ids then
  return { REPEATED, now_ms, last_seq, pack_bytes(outcomes), table.concat(packed_ends) }
elseif moved == 0 and ARG_CHECKOUT == '' then
  return { EXTENSION_LIMIT, now_ms, 0, pack_bytes(outcomes), table.concat(packed_ends) }
end

-- @include append_log
-- @include write_record
append_log('extend', table.concat(ids), table.concat(packed_ends) .. ARG_CHECKOUT .. '\n' .. ARG_KEY)
for i = 1, #ids do
  local hold = holds[i]
  hold.seq, hold.extension = shard_seq, ARG_KEY
  if ARG_CHECKOUT ~= '' then
    hold.checkout = ARG_CHECKOUT
  end
  call('HSET', KEY_HOLDS, ids[i], write_record(hold))
  call('ZADD', KEY_EXPIRY, string.format('%d', new_ends[i]), ids[i])
end
return { DONE, now_ms, shard_seq, pack_bytes(outcomes), table.concat(packed_ends) }
