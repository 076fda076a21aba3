-- @include read_record
-- Removes the records of the ended holds in `forgettable`, and these holds from the lists of their users and addresses.
local gone, listed_in = {}, {}
for i, record in ipairs(call('HMGET', KEY_HOLDS, unpack(forgettable))) do
  local hold = read_record(record)
  gone[forgettable[i]] = true
  listed_in['u' .. hold.user] = true
  if hold.address ~= '' then
    listed_in['a' .. hold.address] = true
  end
end
local removed = {}
for i = 1, #forgettable do
  removed[i] = forgettable[i]
end
for field in pairs(listed_in) do
  local listed, kept = call('HGET', KEY_HOLDS, field), {}
  if listed then
    for from = 1, #listed, ID_BYTES do
      local id = string.sub(listed, from, from + ID_BYTES - 1)
      if not gone[id] then
        kept[#kept + 1] = id
      end
    end
    if #kept == 0 then
      removed[#removed + 1] = field
    else
      call('HSET', KEY_HOLDS, field, table.concat(kept))
    end
  end
end
call('HDEL', KEY_HOLDS, unpack(removed))
call('ZREM', KEY_ENDED, unpack(forgettable))
