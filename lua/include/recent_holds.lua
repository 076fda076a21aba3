-- @include read_record
-- Adds up the holds that one holder's list names (ids, oldest first): live units and when the first of them ends, units
-- reserved within the window in order of time, and the list without what no longer matters.
local function recent_holds(listed)
  local usage = { listed = '', live = 0, first_end_ms = 0, recent = 0, reserved = {} }
  local ids, kept = {}, {}
  for from = 1, #listed, ID_BYTES do
    ids[#ids + 1] = string.sub(listed, from, from + ID_BYTES - 1)
  end
  local records, ends = call('HMGET', KEY_HOLDS, unpack(ids)), call('ZMSCORE', KEY_EXPIRY, unpack(ids))
  for i = 1, #ids do
    if records[i] then
      local hold, ends_ms, units = read_record(records[i]), tonumber(ends[i] or 0), 0
      for _, count in pairs(count_zones({}, hold.seats, hold.quantities)) do
        units = units + count
      end
      local is_live, is_recent = ends_ms > now_ms, hold.created_ms > now_ms - window_ms
      if is_live then
        usage.live = usage.live + units
        usage.first_end_ms = usage.first_end_ms == 0 and ends_ms or math.min(usage.first_end_ms, ends_ms)
      end
      if is_recent then
        usage.recent = usage.recent + units
        usage.reserved[#usage.reserved + 1] = { hold.created_ms, units }
      end
      if is_live or is_recent then
        kept[#kept + 1] = ids[i]
      end
    end
  end
  usage.listed = table.concat(kept)
  return usage
end
