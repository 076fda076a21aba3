#!lua
-- Puts a loaded event into service: its map, its zones, its configuration.
--
-- Guarantees: an event opens once and whole; opening the same version again changes nothing.
--
-- Keys:
--   1 open    string  the fence: the epoch, while this shard serves it
--   2 seq     string  number of the last log entry
--   3 mark    string  number of the last log entry that is persisted
--   4 log     stream  every state change, in order
--   5 counts  hash    configuration and the counters of each zone
--   6 map     string  one byte per seat
--   7 owners  string  sixteen bytes per seat: the hold that has it
--   8 loading string  the map while it is being loaded, and what each seat is behind it
--   9 kinds   string  the category of each seat, where there are several, see allocate_seats.lua
--   10 events set     organisation and event of every open event of the shard
-- Arguments:
--   1 scope     bytes  organisation id and event id, 16 bytes each
--   2 meta      text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   3 version   text   configuration version, 1 to 64 bytes
--   4 state     text   draft, published, live, closed, cancelled or archived
--   5 opens_ms  int    when sales open, ms since 1970, 0 for always
--   6 closes_ms int    when sales close, ms since 1970, 0 for never
--   7 length    int    bytes of the map, 0 when all zones are general admission
--   8 zones     bytes  capacity, first ordinal, bytes in the map (0: general admission), 4 bytes each; up to 1,000
--   9 access    bytes  the policy for wheelchair seats, see include/event_config.lua; empty for an event without
--   10 paired    bytes  wheelchair and companion seats: ordinal, byte, how many seats belong to it, these as pairs
-- Reply:
--   1 status int  one of the statuses
--   2 now_ms int  the server's clock
--   3 seq    int  log entry that must be persisted before the reply is durable, 0 if none
-- Statuses, in order of precedence:
--   fenced, invalid_request, repeated, event_exists, load_incomplete, done
-- Log: open, with the configuration and the zones.
-- Cost: O(bytes of the map), about a millisecond for 100,000 seats.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0 }
end
-- @include event_config
local MAX_ORDINAL = 16777215
local ZONE_SPEC = '>I4I4I4'
local ZONE_SPEC_BYTES = 12
local MAX_ZONES_BYTES = 12000
local PAIRED_SEAT = '>I4c1I2'
local MAX_PAIRED_BYTES = 1048576
local length = integer(ARG_LENGTH, 0, MAX_ORDINAL)
if not config_well_formed or not length or #ARG_ZONES == 0 or #ARG_ZONES % ZONE_SPEC_BYTES ~= 0
  or #ARG_ZONES > MAX_ZONES_BYTES or #ARG_PAIRED > MAX_PAIRED_BYTES or (ARG_ACCESS == '') ~= (ARG_PAIRED == '') then
  return { INVALID_REQUEST, now_ms, 0 }
end
local open_version = call('HGET', KEY_COUNTS, 'version')
if open_version == ARG_VERSION then
  return { REPEATED, now_ms, shard_seq }
elseif open_version then
  return { EVENT_EXISTS, now_ms, 0 }
end
local loaded = call('GET', KEY_LOADING) or ''
if #loaded ~= length and #loaded ~= 2 * length then
  return { LOAD_INCOMPLETE, now_ms, 0 }
end
local map, kinds = string.sub(loaded, 1, length), string.sub(loaded, length + 1)
if string.find(map, '[ri]') or string.find(kinds, 'b', 1, true) then
  return { INVALID_REQUEST, now_ms, 0 }
end

local fields = { 'version', ARG_VERSION, 'state', ARG_STATE, 'opens_ms', ARG_OPENS_MS, 'closes_ms', ARG_CLOSES_MS }
for at = 1, #ARG_ZONES, ZONE_SPEC_BYTES do
  local capacity, first, bytes = struct.unpack(ZONE_SPEC, ARG_ZONES, at)
  local stretch = string.sub(map, first + 1, first + bytes)
  local _, separators = string.gsub(stretch, '|', '')
  local _, blocked = string.gsub(stretch, 'b', '')
  if capacity == 0 or #stretch ~= bytes or bytes > 0 and capacity > bytes - separators then
    return { INVALID_REQUEST, now_ms, 0 }
  end
  fields[#fields + 1] = (at - 1) / ZONE_SPEC_BYTES
  fields[#fields + 1] = struct.pack(ZONE, capacity, bytes - separators, 0, 0, blocked)
end
if ARG_PAIRED ~= '' then
  -- @include paired_seats
end

-- @include append_log
append_log('open', '', table.concat({ ARG_VERSION, ARG_STATE, ARG_OPENS_MS, ARG_CLOSES_MS, ARG_LENGTH }, ' ')
  .. '\n' .. ARG_ZONES)
for at = 1, #fields, 1000 do
  call('HSET', KEY_COUNTS, unpack(fields, at, math.min(at + 999, #fields)))
end
if length > 0 then
  if kinds == '' then
    call('RENAME', KEY_LOADING, KEY_MAP)
  else
    call('SET', KEY_MAP, map)
    call('SET', KEY_KINDS, kinds)
    call('DEL', KEY_LOADING)
  end
  call('SETRANGE', KEY_OWNERS, length * ID_BYTES - 1, '\0')
  -- @include note_taken_runs
  note_taken_runs(1, math.ceil(length / BLOCK_BYTES))
end
call('SADD', KEY_EVENTS, ARG_SCOPE)
return { DONE, now_ms, shard_seq }
