#!lua
-- Adds one block of bytes to the map of an event that is being loaded.
--
-- Guarantees: blocks arrive in order and only while the event is not open; nothing is on sale before open_event.
--
-- Keys:
--   1 open    string  the fence: the epoch, while this shard serves it
--   2 counts  hash    configuration and the counters of each zone
--   3 loading string  the map while it is being loaded, and what each seat is behind it
-- Arguments:
--   1 offset int    where the block starts, which is what has been loaded so far; 0 starts over
--   2 block  bytes  up to 65,536 bytes of '.', 'w', 'a', 'b', 'r', 'i' and the separator '|'
-- Reply:
--   1 status int  one of the statuses
--   2 loaded int  bytes loaded so far
-- Statuses, in order of precedence:
--   fenced, invalid_request, event_exists, load_incomplete, done
-- Log: nothing: what is not open is not state.
-- Cost: O(bytes of the block).

-- @include status
-- @include integer
local call = redis.call
if call('EXISTS', KEY_OPEN) == 0 then
  return { FENCED, 0 }
end
local MAX_BLOCK_BYTES = 65536
local MAX_ORDINAL = 16777215
local offset = integer(ARG_OFFSET, 0, MAX_ORDINAL)
if not offset or #ARG_BLOCK == 0 or #ARG_BLOCK > MAX_BLOCK_BYTES or string.find(ARG_BLOCK, '[^.wabri|]') then
  return { INVALID_REQUEST, 0 }
elseif call('EXISTS', KEY_COUNTS) == 1 then
  return { EVENT_EXISTS, 0 }
end
local loaded = call('STRLEN', KEY_LOADING)
if offset > 0 and offset ~= loaded then
  return { LOAD_INCOMPLETE, loaded }
end
if offset == 0 then
  call('DEL', KEY_LOADING)
end
return { DONE, call('APPEND', KEY_LOADING, ARG_BLOCK) }
