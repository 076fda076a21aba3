#!lua
-- Offers somebody whose wish was refused `count` free seats next to each other, the nearest to a place, or holds them.
--
-- Guarantees: as hold_seats. The seats are in the first of the zones that has such a block: nearest to the place if
-- that is in the zone, else the best. A block that leaves a seat alone is taken only if there is no other and the
-- policy does not refuse that. An offer that is not held writes nothing and binds nobody.
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
--   13 near        int    the place in the map, an ordinal
--   14 take        int    1 to hold the seats, 0 to name them only
-- Reply:
--   1 status     int    one of the statuses
--   2 hold       bytes  id of the hold that answers the request, or empty
--   3 until_ms   int    when that hold ends; for a refusal when it may lift, 0 if unknown
--   4 now_ms     int    the server's clock
--   5 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   6 seats      pairs  the hold's seats, or those that are offered
--   7 quantities pairs  for a refusal the zones in the way and how many units they lack
-- Statuses, in order of precedence:
--   fenced, invalid_request, too_many_seats, event_not_found, hold_id_reused, hold_released, hold_expired, repeated,
--   stale_config, event_unavailable, event_not_available, event_sales_closed, busy, seat_not_found,
--   user_limit_exceeded, address_limit_exceeded, rate_limit_exceeded, no_available_seats, offered, done
-- Log: hold, with the seats left alone where these are noted, if the seats are held.
-- Cost: O(zones) at the speed of a plain search for text where the nearest block is far away, and 128 earlier holds of
-- the same holder.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, '', 0, now_ms, 0, '', '' }
end

-- @include request_choice
local near, take = integer(ARG_NEAR, 0, MAX_ORDINAL), integer(ARG_TAKE, 0, 1)
well_formed = well_formed and near and take
-- @include admit_choice
-- @include holder_limits
if refusal then
  return { refusal, '', lifts_ms, now_ms, 0, '', '' }
end

-- @include nearest_block
local chosen, start = nil, nil
for clean = 1, orphans_refused == 1 and 1 or 2 do
  for i = 1, seat_zones do
    local capacity, zone_seats, held, sold, blocked = struct.unpack(ZONE, counts[i + 1])
    if not start and math.min(capacity, zone_seats - blocked) - held - sold >= units then
      local first, last = firsts_of[i], lasts_of[i]
      chosen, start = i, nearest_block(first, last, near >= first and near <= last and near or first, clean == 1)
    end
  end
end
if not start then
  return { NO_AVAILABLE_SEATS, '', 0, now_ms, 0, '', '' }
end
local zone, pairs_chosen = zone_names[chosen], {}
for i = 1, units do
  pairs_chosen[i] = struct.pack(PAIR, zone, start + i - 1)
end
local seats, quantities, orphans = table.concat(pairs_chosen), '', ''
if take == 0 then
  return { OFFERED, '', 0, now_ms, 0, seats, quantities }
end

zone_names, counts = { zone }, { event_version, counts[chosen + 1] }
if orphans_noted == 1 then
  -- @include find_orphans
  orphans = find_orphans(seats, {})
end
if min_ttl_s > 0 then
  -- @include shorten_ttl
end
-- @include place_hold
return { DONE, ARG_HOLD, ends_ms, now_ms, shard_seq, seats, quantities }
