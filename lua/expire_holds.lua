#!lua flags=allow-oom
-- Expires holds past their time, oldest first, and forgets ended holds whose time on record is over.
--
-- Guarantees: every hold it ends is logged once, however many reapers run; a call is bounded.
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
--   3 retention_ms int    ms that ended holds stay on record, up to 30 days
--   4 limit        int    most holds to expire, and to forget, in this call, 1 to 200
-- Reply:
--   1 status    int  one of the statuses
--   2 now_ms    int  the server's clock
--   3 seq       int  log entry that must be persisted before the reply is durable, 0 if none
--   4 expired   int  holds expired by this call
--   5 forgotten int  records removed by this call
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, done
-- Log: expire, one entry for all holds of the call.
-- Cost: O(units of the holds expired).

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, 0, 0 }
end
-- @include integer
local MAX_RETENTION_MS = 2592000000
local retention_ms, limit = integer(ARG_RETENTION_MS, 0, MAX_RETENTION_MS), integer(ARG_LIMIT, 1, 200)
if not retention_ms or not limit or #ARG_SCOPE ~= 32 or #ARG_META > 4096 then
  return { INVALID_REQUEST, now_ms, 0, 0, 0 }
end
if call('EXISTS', KEY_COUNTS) == 0 then
  return { EVENT_NOT_FOUND, now_ms, 0, 0, 0 }
end

-- @include end_holds
local now = string.format('%d', now_ms)
local due = call('ZRANGEBYSCORE', KEY_EXPIRY, '-inf', now, 'LIMIT', 0, limit)
if #due > 0 then
  local expiry = { operation = 'expire', reason = 'ttl_expired', state = STATE_EXPIRED }
  end_holds(due, call('HMGET', KEY_HOLDS, unpack(due)), expiry, now_ms + retention_ms)
end
local forgettable = call('ZRANGEBYSCORE', KEY_ENDED, '-inf', now, 'LIMIT', 0, limit)
if #forgettable > 0 then
  -- @include forget_holds
end
return { DONE, now_ms, #due > 0 and shard_seq or 0, #due, #forgettable }
