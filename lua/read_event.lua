#!lua flags=no-writes
-- Reads an event as it is at one log entry: configuration, counters and, on request, the map.
--
-- Guarantees: all parts of the reply are of the same moment.
--
-- Keys:
--   1 open   string  the fence: the epoch, while this shard serves it
--   2 seq    string  number of the last log entry
--   3 mark   string  number of the last log entry that is persisted
--   4 counts hash    configuration and the counters of each zone
--   5 map    string  one byte per seat
--   6 owners string  sixteen bytes per seat: the hold that has it
--   7 expiry zset    live holds by the time they end, ms
-- Arguments:
--   1 want_map int  1 for the map, else 0
-- Reply:
--   1 status    int    one of the statuses
--   2 now_ms    int    the server's clock
--   3 seq       int    log entry that must be persisted before the reply is durable, 0 if none
--   4 version   text   configuration version
--   5 state     text   the event's state
--   6 opens_ms  text   when sales open, 0 for always
--   7 closes_ms text   when sales close, 0 for never
--   8 zones     bytes  zone, capacity, seats, held, sold, blocked of each zone, 2 and 5 times 4 bytes
--   9 map       bytes  one byte per seat, or empty; 'c' for a companion seat that is kept for somebody
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_not_found, done
-- Log: nothing.
-- Cost: O(zones), and O(bytes of the map and companion seats) on request.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '', '', '', '', '', '' }
end
if ARG_WANT_MAP ~= '0' and ARG_WANT_MAP ~= '1' then
  return { INVALID_REQUEST, now_ms, 0, '', '', '', '', '', '' }
end
local stored, config, zones = call('HGETALL', KEY_COUNTS), {}, {}
if #stored == 0 then
  return { EVENT_NOT_FOUND, now_ms, 0, '', '', '', '', '', '' }
end
for i = 1, #stored, 2 do
  local zone = tonumber(stored[i])
  if zone then
    zones[#zones + 1] = struct.pack('>I2', zone) .. stored[i + 1]
  else
    config[stored[i]] = stored[i + 1]
  end
end
local map = ARG_WANT_MAP == '1' and call('GET', KEY_MAP) or ''
if map ~= '' and config.access then
  -- @include show_kept_seats
end
return { DONE, now_ms, shard_seq, config.version, config.state, config.opens_ms, config.closes_ms, table.concat(zones),
  map }
