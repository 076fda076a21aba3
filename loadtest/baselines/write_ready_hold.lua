#!lua
-- The lower bound of the script benchmark: performs the writes of hold_seats with values made beforehand.
--
-- Guarantees: none. It only calls the server.
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
--   1 stream_id  text   id of the log entry
--   2 head       bytes  the entry's time, organisation and event
--   3 meta       text   what the audit wants to know of the caller
--   4 hold       bytes  id of the hold
--   5 record     bytes  the hold's record
--   6 seq        int    number of the log entry
--   7 user_field bytes  the user's field in `holds`
--   8 ends_ms    int    when the hold ends
--   9 ordinal    int    the seat
--   10 offset    int    the seat's place in `owners`
--   11 zone      int    the zone of the seat
--   12 counters  bytes  the zone's counters, packed
-- Reply:
--   1 status int  always done
-- Statuses, in order of precedence:
--   done
-- Log: hold.
-- Cost: O(1).

-- @include status
local call = redis.call
call('XADD', KEY_LOG, ARG_STREAM_ID, 'op', 'hold', 'head', ARG_HEAD, 'holds', ARG_HOLD, 'body', ARG_RECORD, 'meta', ARG_META)
call('SET', KEY_SEQ, ARG_SEQ)
call('HSET', KEY_HOLDS, ARG_HOLD, ARG_RECORD, ARG_USER_FIELD, ARG_HOLD)
call('ZADD', KEY_EXPIRY, ARG_ENDS_MS, ARG_HOLD)
call('SETRANGE', KEY_MAP, ARG_ORDINAL, 'h')
call('SETRANGE', KEY_OWNERS, ARG_OFFSET, ARG_HOLD)
call('HSET', KEY_COUNTS, ARG_ZONE, ARG_COUNTERS)
return { DONE }
