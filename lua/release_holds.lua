#!lua flags=allow-oom
-- Gives the seats of holds back, with a reason.
--
-- Guarantees: a sold seat is never released; releasing again changes nothing; a hold past its time ends as expired, not
-- as released. Holds that cannot be released do not keep the others from it; another user's hold keeps all. What a
-- checkout took is released only as the end of that checkout, or where it was never persisted; then the holds of it
-- that have expired end as released too, also those that are forgotten here, so that no late payment can sell them.
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
--   3 user         bytes  id of the owner, 16 bytes; empty for an administrator or the system
--   4 reason       text   user_cancelled, payment_failed, admin_override or not_persisted
--   5 checkout     text   checkout that ends with this, up to 64 bytes, no newline; empty for holds in none
--   6 retention_ms int    ms that ended holds stay on record, up to 30 days
--   7 holds        bytes  ids of the holds, 16 bytes each, 1 to 50
-- Reply:
--   1 status     int    one of the statuses
--   2 now_ms     int    the server's clock
--   3 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   4 outcomes   bytes  one status per hold, a byte each
--   5 seats      pairs  the seats set free
--   6 quantities pairs  the quantities set free
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, not_hold_owner, done, hold_not_found, hold_sold, hold_released,
--   hold_in_checkout, hold_expired
-- Log: expire for holds past their time, release for the others. The end of a checkout is release for what is live and
-- release, with no seats, for what had expired or is forgotten.
-- Cost: O(units of the holds), at most 50 holds.

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
local reasons = { user_cancelled = true, payment_failed = true, admin_override = true, not_persisted = true }
local retention_ms = integer(ARG_RETENTION_MS, 0, MAX_RETENTION_MS)
if not ids or not retention_ms or not reasons[ARG_REASON] or #ARG_SCOPE ~= 32 or #ARG_META > 4096
  or ARG_USER ~= '' and #ARG_USER ~= ID_BYTES or #ARG_CHECKOUT > 64 or string.find(ARG_CHECKOUT, '\n', 1, true) then
  return { INVALID_REQUEST, now_ms, 0, '', '', '' }
end
if call('EXISTS', KEY_COUNTS) == 0 then
  return { EVENT_NOT_FOUND, now_ms, 0, '', '', '' }
end

local outcomes, released, lapsed, last_seq = {}, { ids = {}, records = {} }, { ids = {}, records = {} }, 0
local given_up, seats, quantities = { ids = {}, holds = {} }, {}, {}
for i = 1, #ids do
  local hold, ending = holds[i], nil
  if not hold and ARG_CHECKOUT == '' then
    outcomes[i] = HOLD_NOT_FOUND
  elseif not hold then
    outcomes[i] = DONE
    given_up.ids[#given_up.ids + 1], given_up.holds[#given_up.holds + 1] = ids[i], false
  elseif ARG_USER ~= '' and hold.user ~= ARG_USER then
    return { NOT_HOLD_OWNER, now_ms, 0, '', '', '' }
  elseif hold.state == STATE_SOLD then
    outcomes[i] = HOLD_SOLD
  elseif hold.state == STATE_RELEASED then
    outcomes[i] = HOLD_RELEASED
  elseif ARG_CHECKOUT ~= '' and hold.checkout ~= ARG_CHECKOUT then
    outcomes[i] = HOLD_IN_CHECKOUT
  elseif hold.state == STATE_EXPIRED and ARG_CHECKOUT ~= '' then
    outcomes[i] = DONE
    given_up.ids[#given_up.ids + 1], given_up.holds[#given_up.holds + 1] = ids[i], hold
  elseif hold.state == STATE_EXPIRED then
    outcomes[i] = HOLD_EXPIRED
  elseif ends[i] <= now_ms and ARG_CHECKOUT == '' then
    outcomes[i], ending = HOLD_EXPIRED, lapsed
  elseif hold.checkout ~= ARG_CHECKOUT and ARG_REASON ~= 'not_persisted' then
    outcomes[i] = HOLD_IN_CHECKOUT
  else
    outcomes[i], ending = DONE, released
  end
  if ending then
    ending.ids[#ending.ids + 1], ending.records[#ending.records + 1] = ids[i], write_record(hold)
    seats[#seats + 1], quantities[#quantities + 1] = hold.seats, hold.quantities
  elseif hold then
    last_seq = math.max(last_seq, hold.seq)
  end
end

if #lapsed.ids > 0 then
  local expiry = { operation = 'expire', reason = 'ttl_expired', state = STATE_EXPIRED }
  end_holds(lapsed.ids, lapsed.records, expiry, now_ms + retention_ms)
  last_seq = shard_seq
end
local reason = ARG_CHECKOUT == '' and ARG_REASON or ARG_REASON .. '\n' .. ARG_CHECKOUT
if #given_up.ids > 0 then
  local blocks = {}
  for i = 1, #given_up.ids do
    blocks[i] = { seats = '', quantities = '' }
  end
  append_log('release', table.concat(given_up.ids), pack_blocks(blocks) .. reason)
  for i, hold in ipairs(given_up.holds) do
    if hold then
      hold.state, hold.seq = STATE_RELEASED, shard_seq
      call('HSET', KEY_HOLDS, given_up.ids[i], write_record(hold))
      call('ZADD', KEY_ENDED, string.format('%d', now_ms + retention_ms), given_up.ids[i])
    end
  end
  last_seq = shard_seq
end
if #released.ids > 0 then
  local release = { operation = 'release', reason = reason, state = STATE_RELEASED }
  end_holds(released.ids, released.records, release, now_ms + retention_ms)
  last_seq = shard_seq
end
-- @include refuse_first
-- @include pack_bytes
local status = refuse_first(outcomes,
  { DONE, HOLD_NOT_FOUND, HOLD_SOLD, HOLD_RELEASED, HOLD_IN_CHECKOUT, HOLD_EXPIRED })
return { status, now_ms, last_seq, pack_bytes(outcomes), table.concat(seats), table.concat(quantities) }
