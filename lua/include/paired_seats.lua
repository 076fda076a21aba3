-- Adds the wheelchair and companion seats of a new event to `fields`. Refuses what does not agree with the map.
local places, from = 0, 1
fields[#fields + 1], fields[#fields + 2] = 'access', ARG_ACCESS
while from <= #ARG_PAIRED do
  if #ARG_PAIRED - from < 6 then
    return { INVALID_REQUEST, now_ms, 0 }
  end
  local ordinal, byte, count, others = struct.unpack(PAIRED_SEAT, ARG_PAIRED, from)
  from = others + count * PAIR_BYTES
  local in_map = string.sub(map, ordinal + 1, ordinal + 1)
  if byte ~= 'w' and byte ~= 'a' or in_map ~= byte and in_map ~= 'b' or from > #ARG_PAIRED + 1 then
    return { INVALID_REQUEST, now_ms, 0 }
  end
  places = places + (in_map == byte and 1 or 0)
  fields[#fields + 1], fields[#fields + 2] = 's' .. ordinal, byte .. string.sub(ARG_PAIRED, others, from - 1)
end
local _, in_the_map = string.gsub(map, '[wa]', '')
if in_the_map ~= places then
  return { INVALID_REQUEST, now_ms, 0 }
end
