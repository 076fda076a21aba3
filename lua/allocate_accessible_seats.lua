#!lua
-- Holds a wheelchair seat of one of several zones, the best that is free, with so many of its companion seats.
--
-- Guarantees: as hold_seats; the first wheelchair seat, in the first zone that has any, of which enough companion seats
-- are free, with the first of these.
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
--   10 ttl_ms      int    ms the hold lives, 1,000 to 86,400,000
--   11 stretches   bytes  zones in order of preference, 1 to 100: zone, ordinals of its first and last seat, packed
--   12 count       int    how many seats with the wheelchair seat, 1 to the units per call
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
--   no_available_seats, wheelchair_limit_exceeded, user_limit_exceeded, address_limit_exceeded, rate_limit_exceeded,
--   block_at_capacity, done
-- Log: expire for overdue holds where nothing else is free, then hold, then accessible where the audit wants that.
-- Cost: O(bytes of the zones and their free wheelchair seats); at most 64 overdue holds and 128 earlier holds of the
-- same holder.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, '', 0, now_ms, 0, '', '' }
end

-- @include request_choice
-- @include admit_choice

-- @include find_wheelchair_seat
if not chosen then
  return { NO_AVAILABLE_SEATS, '', 0, now_ms, 0, '', '' }
end
-- @include wheelchair_limit
-- @include holder_limits
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, '', '' }
end

local zone = zone_names[chosen]
zone_names, counts = { zone }, { event_version, counts[chosen + 1] }
-- @include lacking_here
if short ~= '' or #due_ids > 0 then
  -- @include make_room
end
local quantities, orphans = '', ''
if min_ttl_s > 0 then
  -- @include shorten_ttl
end
-- @include place_hold
local hold_seq = shard_seq
-- @include book_wheelchairs
return { DONE, ARG_HOLD, ends_ms, now_ms, hold_seq, seats, quantities }
