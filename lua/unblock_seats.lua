#!lua flags=allow-oom
-- Puts blocked seats, or general-admission places, back on sale: all or none.
--
-- Guarantees: only blocked seats change; unblocking again changes nothing; a refusal writes nothing.
--
-- Keys:
--   1 open   string  the fence: the epoch, while this shard serves it
--   2 seq    string  number of the last log entry
--   3 mark   string  number of the last log entry that is persisted
--   4 log    stream  every state change, in order
--   5 counts hash    configuration and the counters of each zone
--   6 map    string  one byte per seat
--   7 owners string  sixteen bytes per seat: the hold that has it
-- Arguments:
--   1 scope      bytes  organisation id and event id, 16 bytes each
--   2 meta       text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   3 version    text   configuration version the caller compiled
--   4 seats      pairs  zone and ordinal of each seat, packed, up to 1,000
--   5 quantities pairs  zone and quantity of general-admission places, packed, up to 100
-- Reply:
--   1 status     int    one of the statuses
--   2 now_ms     int    the server's clock
--   3 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   4 seats      pairs  the seats changed; for a refusal the seats in the way
--   5 quantities pairs  the quantities changed; for a refusal the zones in the way
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, stale_config, seat_not_found, repeated, done
-- Log: unblock.
-- Cost: O(seats), at most 1,000 seats.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '', '' }
end
-- @include split_pairs
local seats, quantities = split_pairs(ARG_SEATS, 1000, 2), split_pairs(ARG_QUANTITIES, 100, 1)
if not seats or not quantities or #seats + #quantities == 0 or #ARG_SCOPE ~= 32 or #ARG_META > 4096 then
  return { INVALID_REQUEST, now_ms, 0, '', '' }
end
local event_version = call('HGET', KEY_COUNTS, 'version')
if not event_version then
  return { EVENT_NOT_FOUND, now_ms, 0, '', '' }
elseif event_version ~= ARG_VERSION then
  return { STALE_CONFIG, now_ms, 0, '', '' }
end
-- @include append_log
-- @include free_seats
-- @include count_zones
-- @include move_units
-- @include negate
-- @include pack_blocks
-- @include zone_counters
-- @include note_free_runs
local blocked_seats, unknown, unknown_zones = {}, {}, {}
for _, seat in ipairs(seats) do
  local byte = call('GETRANGE', KEY_MAP, seat[2], seat[2])
  local _, zone_seats = zone_counters(seat[1])
  if not string.find(byte, '^[.hsbwa]$') or not zone_seats or zone_seats == 0 then
    unknown[#unknown + 1] = seat[3]
  elseif byte == 'b' then
    blocked_seats[#blocked_seats + 1] = seat[3]
  end
end
local unblocked = {}
for _, quantity in ipairs(quantities) do
  local capacity, zone_seats, _, _, blocked = zone_counters(quantity[1])
  if not capacity or zone_seats > 0 then
    unknown_zones[#unknown_zones + 1] = quantity[3]
  elseif quantity[2] > 0 and blocked > 0 then
    unblocked[#unblocked + 1] = struct.pack(PAIR, quantity[1], math.min(quantity[2], blocked))
  end
end
if #unknown + #unknown_zones > 0 then
  return { SEAT_NOT_FOUND, now_ms, 0, table.concat(unknown), table.concat(unknown_zones) }
end
if #blocked_seats + #unblocked == 0 then
  return { REPEATED, now_ms, shard_seq, '', '' }
end

local changed, places = table.concat(blocked_seats), table.concat(unblocked)
append_log('unblock', '', pack_blocks({ { seats = changed, quantities = places } }))
free_seats(changed)
note_free_runs(changed)
move_units({}, {}, negate(count_zones({}, changed, places)))
return { DONE, now_ms, shard_seq, changed, places }
