#!lua
-- Holds `count` seats of one of several zones, the best that are free: together, and leaving nobody alone, if possible.
--
-- Guarantees: as hold_seats; the seats are all in one zone. Where free seats next to each other leave no single seat
-- behind, the first of those are given, in the first zone that has any; otherwise what engine/choosing.py says.
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
--   11 kinds  string  the category of each seat, if there are several: '.' standard, 'r' restricted view, 'i' aisle
-- Arguments:
--   1 scope       bytes  organisation id and event id, 16 bytes each
--   2 version     text   configuration version the caller compiled
--   3 rules       bytes  the limits of that configuration, see include/hold_rules.lua
--   4 meta        text   what the audit wants to know of the caller, JSON, up to 4,096 bytes
--   5 hold        bytes  id of the hold, 16 bytes
--   6 fingerprint text   digest of the request's content, up to 16 bytes, no newline
--   7 user        bytes  id of the user, 16 bytes
--   8 address     text   digest of the client's address, up to 14 bytes, no newline, may be empty
--   9 cart        text   cart token, up to 255 bytes, no newline, may be empty
--   10 ttl_ms      int    ms the hold lives, 1,000 to 86,400,000, unless the rules shorten it
--   11 stretches   bytes  zones in order of preference, 1 to 100: zone, ordinals of its first and last seat, packed
--   12 count       int    how many seats, 1 to the units per call
--   13 categories  text   letters of the categories of seats to choose from, as in `kinds`; empty for all but w and a
-- Reply:
--   1 status     int    one of the statuses
--   2 hold       bytes  id of the hold that answers the request, or empty
--   3 until_ms   int    when that hold ends; for a refusal when it may lift, 0 if unknown
--   4 now_ms     int    the server's clock
--   5 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   6 seats      pairs  the hold's seats; for a refusal the seats in the way
--   7 quantities pairs  the hold's quantities; for a refusal the zones in the way and how many units they lack
-- Statuses, in order of precedence:
--   fenced, invalid_request, too_many_seats, event_not_found, hold_id_reused, hold_released, hold_expired, repeated,
--   stale_config, event_unavailable, event_not_available, event_sales_closed, busy, seat_not_found,
--   user_limit_exceeded, address_limit_exceeded, rate_limit_exceeded, no_available_seats, block_at_capacity, done
-- Log: expire for overdue holds, at most 64, where their seats or units were needed, then hold, with the seats left
-- alone where these are noted.
-- Cost: O(zones) at the speed of a plain search for text, less the blocks an earlier search has ruled out and where no
-- seat has come free since; where there is no block for the group, the free seats of up to 400 rows of each zone; at
-- most 64 overdue holds and 128 earlier holds of the same holder.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, '', 0, now_ms, 0, '', '' }
end

-- @include request_choice
well_formed = well_formed and #ARG_CATEGORIES <= 3 and not string.find(ARG_CATEGORIES, '[^.ri]')
fields[#zone_names + 2] = 'runs'
-- @include admit_choice
local known_runs = counts[seat_zones + 2] or ''
local map_bytes = ARG_CATEGORIES ~= '' and call('STRLEN', KEY_MAP)
if map_bytes and call('STRLEN', KEY_KINDS) ~= map_bytes then
  -- What Redis has of the event is not what the caller compiled.
  return { STALE_CONFIG, '', 0, now_ms, 0, '', '' }
end
-- @include holder_limits
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, '', '' }
end

local due_ids, due_seen, searched, is_clean = {}, {}, {}, true
for i = 1, seat_zones do
  local capacity, zone_seats, held, sold, blocked = struct.unpack(ZONE, counts[i + 1])
  if math.min(capacity, zone_seats - blocked) - held - sold >= units then
    searched[#searched + 1] = i
  end
end
local chosen, clusters, ruled_out = nil, nil, false
if ARG_CATEGORIES == '' then
  -- @include find_clean_run
else
  -- @include find_wanted_run
end
if not chosen then
  is_clean = false
  -- @include choose_with_compromise
  -- @include clean_part
  -- @include leave_out_others
  local stretches = {}
  for i = 1, #searched do
    local first = firsts_of[searched[i]]
    stretches[searched[i]] = call('GETRANGE', KEY_MAP, first, lasts_of[searched[i]])
    if ARG_CATEGORIES ~= '' then
      stretches[searched[i]] = leave_out_others(stretches[searched[i]], first)
    end
  end
  chosen, clusters = choose_with_compromise(stretches)
  if chosen then
    for i = 1, #clusters, 2 do
      clusters[i] = clusters[i] + firsts_of[chosen] - 1
    end
  else
    -- @include choose_among_overdue
  end
end
if not chosen then
  return { NO_AVAILABLE_SEATS, '', 0, now_ms, 0, '', '' }
end

local zone = zone_names[chosen]
zone_names, counts = { zone }, { event_version, counts[chosen + 1] }
-- @include lacking_here
if short ~= '' or #due_ids > 0 then
  -- @include make_room
end

local pairs_chosen, quantities = {}, ''
for i = 1, #clusters, 2 do
  for ordinal = clusters[i], clusters[i] + clusters[i + 1] - 1 do
    pairs_chosen[#pairs_chosen + 1] = struct.pack(PAIR, zone, ordinal)
  end
end
local seats, orphans = table.concat(pairs_chosen), ''
if orphans_noted == 1 and not is_clean then
  -- @include find_orphans
  orphans = find_orphans(seats, {})
end
if min_ttl_s > 0 then
  -- @include shorten_ttl
end
-- @include place_hold
-- Where holds have ended, the digits have just been written anew.
if ruled_out and #due_ids == 0 then
  call('HSET', KEY_COUNTS, 'runs', known_runs)
end
return { DONE, ARG_HOLD, ends_ms, now_ms, shard_seq, seats, quantities }
