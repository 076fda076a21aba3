-- @include split_ids
-- @include read_record
-- Reads the holds an operation names, at most 50: their ids, their fields (false where there is no record) and when the
-- live ones end (0 otherwise). `ids` is nil when the argument is not a list of at least one id.
local MAX_HOLDS = 50
local ids, holds, ends = split_ids(ARG_HOLDS, MAX_HOLDS), {}, {}
if ids and #ids == 0 then
  ids = nil
end
if ids then
  local records, scores = call('HMGET', KEY_HOLDS, unpack(ids)), call('ZMSCORE', KEY_EXPIRY, unpack(ids))
  for i = 1, #ids do
    holds[i], ends[i] = records[i] and read_record(records[i]), tonumber(scores[i] or 0)
  end
end
