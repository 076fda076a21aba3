#!lua
-- Holds named seats and general-admission quantities for one user, all or nothing.
--
-- Guarantees: a seat has at most one live hold; a zone never exceeds its capacity; the same hold id never holds twice;
-- a refusal writes nothing. What the user already holds is not held again: the new hold covers the rest. A companion
-- seat that is kept for the buyer of its wheelchair seat is not available to others.
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
--   11 seats       pairs  zone and ordinal of each seat, packed
--   12 quantities  pairs  zone and quantity of each general-admission wish, packed
-- Reply:
--   1 status     int    one of the statuses
--   2 hold       bytes  id of the hold that answers the request, or empty
--   3 until_ms   int    when that hold ends; for a refusal when it may lift, 0 if unknown, -1 if never
--   4 now_ms     int    the server's clock
--   5 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   6 seats      pairs  the hold's seats; for a refusal the seats in the way, or left alone
--   7 quantities pairs  the hold's quantities; for a refusal the zones in the way and how many units they lack
-- Statuses, in order of precedence:
--   fenced, invalid_request, too_many_seats, event_not_found, hold_id_reused, hold_released, hold_expired, repeated,
--   stale_config, event_unavailable, event_not_available, event_sales_closed, busy, seat_not_found,
--   seat_not_available, seat_held_by_another_user, already_held, wheelchair_limit_exceeded, leaves_orphan,
--   user_limit_exceeded, address_limit_exceeded, rate_limit_exceeded, block_at_capacity, done
-- Log: expire for holds past their time on the seats, and for others where a zone lacked room, then hold, with the
-- seats left alone where these are noted; accessible after one that has wheelchair seats, where the audit wants that.
-- Cost: O(units): at most 100 units, 100 due and 64 overdue holds, and 128 earlier holds of the same holder. One entry
-- of the log in 128 also looks at 4,096 bytes of the map.

local HOLDS_PER_LOOK = 128
-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, '', 0, now_ms, 0, '', '' }
end

-- @include hold_rules
-- @include request_units
if not well_formed then
  return { INVALID_REQUEST, '', 0, now_ms, 0, '', '' }
elseif units > max_units or units > MAX_UNITS then
  return { TOO_MANY_SEATS, '', 0, now_ms, 0, '', '' }
end

local counts = call('HMGET', KEY_COUNTS, 'version', unpack(zone_names))
local event_version = counts[1]
if not event_version then
  return { EVENT_NOT_FOUND, '', 0, now_ms, 0, '', '' }
end
-- @include read_holders
if on_record then
  -- @include known_hold
end
-- @include admission
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, '', '' }
end
-- @include find_short_zones
if misplaced ~= '' then
  return { SEAT_NOT_FOUND, '', 0, now_ms, 0, '', misplaced }
end
-- @include find_obstacles
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, in_the_way, '' }
end
if own_hold then
  -- @include leave_out_own_seats
end
if wheelchairs then
  -- @include wheelchair_limit
end
local orphans = ''
if (orphans_refused == 1 or orphans_noted == 1) and seats ~= '' then
  -- @include seats_coming_free
  -- @include find_orphans
  local left_alone, unexcused = find_orphans(seats, seats_coming_free(due_ids or {}))
  if orphans_refused == 1 and unexcused ~= '' then
    return { LEAVES_ORPHAN, '', 0, now_ms, 0, unexcused, '' }
  end
  orphans = orphans_noted == 1 and left_alone or ''
end

-- @include holder_limits
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, '', '' }
end
if short ~= '' or due_ids then
  -- @include make_room
end

if min_ttl_s > 0 then
  -- @include shorten_ttl
end
-- @include place_hold
if shard_seq % HOLDS_PER_LOOK == 0 then
  -- @include note_taken_runs
  local blocks = math.ceil(call('STRLEN', KEY_MAP) / BLOCK_BYTES)
  if blocks > 0 then
    local block = math.floor(shard_seq / HOLDS_PER_LOOK) % blocks + 1
    note_taken_runs(block, block)
  end
end
local hold_seq = shard_seq
if wheelchairs then
  -- @include book_wheelchairs
end
return { DONE, ARG_HOLD, ends_ms, now_ms, hold_seq, seats, quantities }
