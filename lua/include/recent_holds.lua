-- @include layout
-- Adds up the holds that one holder's list names (ids, oldest first): live units and when the first of them ends, units
-- reserved within the window, with when and how many in order of time, and the list without what no longer matters.
-- Every hold of somebody who has others runs through this, so it reads no more of a record than it needs.
local TIMES_AND_SIZES = '>I8I4I2I2'
local TIMES_AND_SIZES_AT = 26
local function recent_holds(listed)
  local usage = { listed = listed, live = 0, first_end_ms = 0, recent = 0, reserved_ms = {}, reserved_units = {} }
  local ids, kept, window_from_ms = {}, {}, now_ms - window_ms
  for from = 1, #listed, ID_BYTES do
    ids[#ids + 1] = string.sub(listed, from, from + ID_BYTES - 1)
  end
  local records, ends = call('HMGET', KEY_HOLDS, unpack(ids)), call('ZMSCORE', KEY_EXPIRY, unpack(ids))
  for i = 1, #ids do
    local record = records[i]
    if record then
      local created_ms, _, units, quantity_count = struct.unpack(TIMES_AND_SIZES, record, TIMES_AND_SIZES_AT)
      local quantities_at = RECORD_HEAD_BYTES + units * PAIR_BYTES + 1
      for at = quantities_at, quantities_at + (quantity_count - 1) * PAIR_BYTES, PAIR_BYTES do
        local _, quantity = struct.unpack(PAIR, record, at)
        units = units + quantity
      end
      local ends_ms = ends[i] and tonumber(ends[i]) or 0
      if ends_ms > now_ms then
        usage.live, kept[#kept + 1] = usage.live + units, ids[i]
        if usage.first_end_ms == 0 or ends_ms < usage.first_end_ms then
          usage.first_end_ms = ends_ms
        end
      elseif created_ms > window_from_ms then
        kept[#kept + 1] = ids[i]
      end
      if created_ms > window_from_ms then
        local position = #usage.reserved_ms + 1
        usage.recent = usage.recent + units
        usage.reserved_ms[position], usage.reserved_units[position] = created_ms, units
      end
    end
  end
  if #kept < #ids then
    usage.listed = table.concat(kept)
  end
  return usage
end
