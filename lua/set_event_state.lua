#!lua
-- Changes the state, the sale window or the capacities of an open event.
--
-- Guarantees: takes effect on the very next hold, because every hold names the version it was compiled from; a change
-- made against another version than the current one is refused.
--
-- Keys:
--   1 open   string  the fence: the epoch, while this shard serves it
--   2 seq    string  number of the last log entry
--   3 mark   string  number of the last log entry that is persisted
--   4 log    stream  every state change, in order
--   5 counts hash    configuration and the counters of each zone
-- Arguments:
--   1 scope      bytes  organisation id and event id, 16 bytes each
--   2 meta       text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   3 expected   text   the version this change was made against
--   4 version    text   configuration version, 1 to 64 bytes
--   5 state      text   draft, published, live, closed, cancelled or archived
--   6 opens_ms   int    when sales open, ms since 1970, 0 for always
--   7 closes_ms  int    when sales close, ms since 1970, 0 for never
--   8 access     bytes  the policy for wheelchair seats, see include/event_config.lua; empty for an event without
--   9 capacities pairs  zone and new capacity, packed, up to 1,000; may be empty
-- Reply:
--   1 status int  one of the statuses
--   2 now_ms int  the server's clock
--   3 seq    int  log entry that must be persisted before the reply is durable, 0 if none
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, repeated, stale_config, seat_not_found, done
-- Log: state, with the new configuration.
-- Cost: O(zones changed).

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0 }
end
-- @include event_config
-- @include split_pairs
local capacities = split_pairs(ARG_CAPACITIES, 1000, 1)
if not config_well_formed or not capacities then
  return { INVALID_REQUEST, now_ms, 0 }
end
local version = call('HGET', KEY_COUNTS, 'version')
if not version then
  return { EVENT_NOT_FOUND, now_ms, 0 }
elseif version == ARG_VERSION then
  return { REPEATED, now_ms, shard_seq }
elseif version ~= ARG_EXPECTED then
  return { STALE_CONFIG, now_ms, 0 }
end
-- @include zone_counters
local fields = { 'version', ARG_VERSION, 'state', ARG_STATE, 'opens_ms', ARG_OPENS_MS, 'closes_ms', ARG_CLOSES_MS }
for _, change in ipairs(capacities) do
  local capacity, seats, held, sold, blocked = zone_counters(change[1])
  if not capacity then
    return { SEAT_NOT_FOUND, now_ms, 0 }
  elseif change[2] == 0 or seats > 0 and change[2] > seats then
    return { INVALID_REQUEST, now_ms, 0 }
  end
  fields[#fields + 1], fields[#fields + 2] = change[1], struct.pack(ZONE, change[2], seats, held, sold, blocked)
end
if ARG_ACCESS ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'access', ARG_ACCESS
end
-- @include append_log
append_log('state', '', table.concat({ ARG_VERSION, ARG_STATE, ARG_OPENS_MS, ARG_CLOSES_MS }, ' ')
  .. '\n' .. ARG_CAPACITIES)
call('HSET', KEY_COUNTS, unpack(fields))
return { DONE, now_ms, shard_seq }
