#!lua flags=allow-oom
-- Takes an event out of service and its keys out of the server.
--
-- Guarantees: an event that sells or has live holds is not closed; closing again finds nothing.
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
--   11 kinds  string  the category of each seat, where there are several
--   12 events set     organisation and event of every open event of the shard
-- Arguments:
--   1 scope bytes  organisation id and event id, 16 bytes each
--   2 meta  text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
-- Reply:
--   1 status int  one of the statuses
--   2 now_ms int  the server's clock
--   3 seq    int  log entry that must be persisted before the reply is durable, 0 if none
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, event_in_use, done
-- Log: close.
-- Cost: O(1); the server frees the memory in the background.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0 }
end
if #ARG_SCOPE ~= 32 or #ARG_META > 4096 then
  return { INVALID_REQUEST, now_ms, 0 }
end
local state = call('HGET', KEY_COUNTS, 'state')
if not state then
  return { EVENT_NOT_FOUND, now_ms, 0 }
elseif state == 'published' or state == 'live' or call('ZCARD', KEY_EXPIRY) > 0 then
  return { EVENT_IN_USE, now_ms, 0 }
end
-- @include append_log
append_log('close', '', '')
call('UNLINK', KEY_COUNTS, KEY_MAP, KEY_OWNERS, KEY_HOLDS, KEY_EXPIRY, KEY_ENDED, KEY_KINDS)
call('SREM', KEY_EVENTS, ARG_SCOPE)
return { DONE, now_ms, shard_seq }
