#!lua
-- Takes seats, or general-admission places, out of sale: all or none.
--
-- Guarantees: a held or sold seat is never blocked; blocking again changes nothing; a refusal writes nothing. A
-- companion seat that is kept for somebody is free, and may be blocked.
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
--   3 version      text   configuration version the caller compiled
--   4 seats        pairs  zone and ordinal of each seat, packed, up to 1,000
--   5 quantities   pairs  zone and quantity of general-admission places, packed, up to 100
--   6 retention_ms int    ms that ended holds stay on record, up to 30 days
-- Reply:
--   1 status     int    one of the statuses
--   2 now_ms     int    the server's clock
--   3 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   4 seats      pairs  the seats changed; for a refusal the seats in the way
--   5 quantities pairs  the quantities changed; for a refusal the zones in the way
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, stale_config, seat_not_found, seat_not_available,
--   seat_held_by_another_user, block_at_capacity, repeated, done
-- Log: expire for overdue holds on the seats, then block.
-- Cost: O(seats), at most 1,000 seats, and O(bytes of the map) between the first and the last of them.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '', '' }
end
-- @include integer
-- @include split_pairs
local MAX_RETENTION_MS = 2592000000
local retention_ms = integer(ARG_RETENTION_MS, 0, MAX_RETENTION_MS)
local seats, quantities = split_pairs(ARG_SEATS, 1000, 2), split_pairs(ARG_QUANTITIES, 100, 1)
local well_formed = seats and quantities and #seats + #quantities > 0 and retention_ms and #ARG_SCOPE == 32
  and #ARG_META <= 4096
for _, quantity in ipairs(quantities or {}) do
  well_formed = well_formed and quantity[2] > 0
end
if not well_formed then
  return { INVALID_REQUEST, now_ms, 0, '', '' }
end
local event_version = call('HGET', KEY_COUNTS, 'version')
if not event_version then
  return { EVENT_NOT_FOUND, now_ms, 0, '', '' }
elseif event_version ~= ARG_VERSION then
  return { STALE_CONFIG, now_ms, 0, '', '' }
end

-- @include end_holds
-- @include find_lost_seats
-- @include zone_counters
local refusal, in_the_way, zones_in_the_way, free = nil, {}, {}, {}
local function refuse(status, seat, quantity)
  if not refusal or status < refusal then
    refusal, in_the_way, zones_in_the_way = status, {}, {}
  end
  if status == refusal then
    in_the_way[#in_the_way + 1], zones_in_the_way[#zones_in_the_way + 1] = seat, quantity
  end
end
for _, seat in ipairs(seats) do
  local byte = call('GETRANGE', KEY_MAP, seat[2], seat[2])
  local _, zone_seats = zone_counters(seat[1])
  if not string.find(byte, '^[.hsbwa]$') or not zone_seats or zone_seats == 0 then
    refuse(SEAT_NOT_FOUND, seat[3], nil)
  elseif byte == 's' then
    refuse(SEAT_NOT_AVAILABLE, seat[3], nil)
  elseif byte ~= 'b' and find_lost_seats(seat[3]) ~= '' then
    refuse(SEAT_HELD_BY_ANOTHER_USER, seat[3], nil)
  elseif byte ~= 'b' then
    free[#free + 1] = seat[3]
  end
end
for _, quantity in ipairs(quantities) do
  local capacity, zone_seats, held, sold, blocked = zone_counters(quantity[1])
  if not capacity or zone_seats > 0 then
    refuse(SEAT_NOT_FOUND, nil, quantity[3])
  elseif quantity[2] > capacity - held - sold - blocked then
    refuse(BLOCK_AT_CAPACITY, nil, quantity[3])
  end
end
if refusal then
  return { refusal, now_ms, 0, table.concat(in_the_way), table.concat(zones_in_the_way) }
end
if #free + #quantities == 0 then
  return { REPEATED, now_ms, shard_seq, '', '' }
end

if #due_ids > 0 then
  local expiry = { operation = 'expire', reason = 'ttl_expired', state = STATE_EXPIRED }
  end_holds(due_ids, call('HMGET', KEY_HOLDS, unpack(due_ids)), expiry, now_ms + retention_ms)
end
local changed = table.concat(free)
append_log('block', '', pack_blocks({ { seats = changed, quantities = ARG_QUANTITIES } }))
write_seats(changed, 'b')
if changed ~= '' then
  -- @include note_taken_runs
  local lowest, highest = math.huge, 0
  for at = 1, #changed, PAIR_BYTES do
    local _, ordinal = struct.unpack(PAIR, changed, at)
    lowest, highest = math.min(lowest, ordinal), math.max(highest, ordinal)
  end
  note_taken_runs(math.floor(lowest / BLOCK_BYTES) + 1, math.floor(highest / BLOCK_BYTES) + 1)
end
move_units({}, {}, count_zones({}, changed, ARG_QUANTITIES))
return { DONE, now_ms, shard_seq, changed, ARG_QUANTITIES }
