#!lua flags=no-writes
-- Reads holds by id, or those of one user that live or count in the rate window.
--
-- Guarantees: all parts of the reply are of the same moment; with a user, other users' holds are left out.
--
-- Keys:
--   1 open   string  the fence: the epoch, while this shard serves it
--   2 seq    string  number of the last log entry
--   3 mark   string  number of the last log entry that is persisted
--   4 holds  hash    hold id to record; 'u' and user, 'a' and address to the ids of their holds
--   5 expiry zset    live holds by the time they end, ms
-- Arguments:
--   1 user  bytes  id of the owner, 16 bytes; empty for any
--   2 holds bytes  ids of the holds, 16 bytes each, up to 100; empty for all of the user
-- Reply:
--   1 status  int    one of the statuses
--   2 now_ms  int    the server's clock
--   3 seq     int    log entry that must be persisted before the reply is durable, 0 if none
--   4 holds   bytes  ids of the holds found, 16 bytes each
--   5 ends_ms bytes  when each ends, 8 bytes each, 0 if it has ended
--   6 records array  their records
-- Statuses, in order of precedence:
--   fenced, invalid_request, done
-- Log: nothing.
-- Cost: O(holds), at most 128.

-- @include status
-- @include layout
-- @include enter_shard
if not shard_epoch then
  return { FENCED, now_ms, 0, '', '', {} }
end
-- @include split_ids
local listed = ARG_HOLDS
if listed == '' and #ARG_USER == ID_BYTES then
  listed = call('HGET', KEY_HOLDS, 'u' .. ARG_USER) or ''
end
local ids = split_ids(listed, 128)
if not ids or #ARG_HOLDS > 100 * ID_BYTES or ARG_USER ~= '' and #ARG_USER ~= ID_BYTES
  or ARG_USER .. ARG_HOLDS == '' then
  return { INVALID_REQUEST, now_ms, 0, '', '', {} }
end
local found, ends, records = {}, {}, {}
if #ids > 0 then
  local stored, scores = call('HMGET', KEY_HOLDS, unpack(ids)), call('ZMSCORE', KEY_EXPIRY, unpack(ids))
  for i = 1, #ids do
    if stored[i] and (ARG_USER == '' or string.sub(stored[i], 1, ID_BYTES) == ARG_USER) then
      found[#found + 1], records[#records + 1] = ids[i], stored[i]
      ends[#ends + 1] = struct.pack('>I8', tonumber(scores[i] or 0))
    end
  end
end
return { DONE, now_ms, shard_seq, table.concat(found), table.concat(ends), records }
