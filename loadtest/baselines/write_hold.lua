#!lua
-- The baseline of the script benchmark: performs the writes of hold_seats, from the same arguments, and nothing else.
--
-- Guarantees: none. It reads no key and checks nothing; what only the server could tell it, the benchmark passes in.
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
--   6 fingerprint text   digest of the request's content, up to 16 bytes
--   7 user        bytes  id of the user, 16 bytes
--   8 address     text   digest of the client's address, up to 14 bytes, may be empty
--   9 cart        text   cart token without a newline, up to 255 bytes, may be empty
--   10 ttl_ms      int    ms the hold lives, 1,000 to 86,400,000
--   11 seats       pairs  zone and ordinal of each seat, packed
--   12 quantities  pairs  zone and quantity of each general-admission wish, packed
--   13 epoch       int    the shard's epoch
--   14 last_seq    int    number of the last log entry
--   15 zone        int    the zone of the seats
--   16 counters    bytes  the zone's counters, packed
-- Reply:
--   1 status     int    one of the statuses
--   2 hold       bytes  id of the hold that answers the request, or empty
--   3 until_ms   int    when that hold ends; for a refusal when it may lift, 0 if unknown
--   4 now_ms     int    the server's clock
--   5 seq        int    log entry that must be persisted before the reply is durable, 0 if none
--   6 seats      pairs  the hold's seats; for a refusal the seats in the way
--   7 quantities pairs  the hold's quantities; for a refusal the zones in the way and how many units they lack
-- Statuses, in order of precedence:
--   done
-- Log: hold.
-- Cost: O(units).

-- @include status
-- @include layout
local call = redis.call
local clock = call('TIME')
local now_ms = clock[1] * 1000 + clock[2] / 1000
now_ms = now_ms - now_ms % 1
local shard_epoch, shard_seq, ttl_ms = ARG_EPOCH, tonumber(ARG_LAST_SEQ), tonumber(ARG_TTL_MS)
local seats, quantities, orphans, zone = ARG_SEATS, ARG_QUANTITIES, '', tonumber(ARG_ZONE)
local zone_names, totals, counts = { zone }, { [zone] = #seats / PAIR_BYTES }, { ARG_VERSION, ARG_COUNTERS }
local user_field, user_list, follow_address, address_field, address_list = 'u' .. ARG_USER, nil, false, nil, nil
-- @include place_hold
return { DONE, ARG_HOLD, ends_ms, now_ms, shard_seq, seats, quantities }
