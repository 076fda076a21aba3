-- @include end_holds
-- Expires the holds that are due; where zones are still short, overdue holds of the event too, at most 64. When even
-- that does not make room it refuses, and nothing is written.
local MAX_OVERDUE = 64
due_ids = due_ids or {}
if short ~= '' then
  local overdue = call('ZRANGEBYSCORE', KEY_EXPIRY, '-inf', now_ms, 'LIMIT', 0, MAX_OVERDUE)
  for i = 1, #overdue do
    if not due_seen or not due_seen[overdue[i]] then
      due_ids[#due_ids + 1] = overdue[i]
    end
  end
end
local due_records, returning, lacking = {}, {}, ''
if #due_ids > 0 then
  due_records = call('HMGET', KEY_HOLDS, unpack(due_ids))
end
for i = 1, #due_ids do
  local hold = read_record(due_records[i])
  count_zones(returning, hold.seats, hold.quantities)
end
for at = 1, #short, PAIR_BYTES do
  local zone, units_short = struct.unpack(PAIR, short, at)
  units_short = units_short - (returning[zone] or 0)
  if units_short > 0 then
    lacking = lacking .. struct.pack(PAIR, zone, units_short)
  end
end
if lacking ~= '' then
  return { BLOCK_AT_CAPACITY, '', 0, now_ms, 0, '', lacking }
end
local expiry = { operation = 'expire', reason = 'ttl_expired', state = STATE_EXPIRED }
end_holds(due_ids, due_records, expiry, now_ms + retention_ms)
counts = call('HMGET', KEY_COUNTS, 'version', unpack(zone_names))
