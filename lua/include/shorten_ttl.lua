-- Shortens the time to live of a hold as its zones fill up: from the share of `adaptive_from` percent held and sold on
-- evenly, down to `min_ttl_s` in a zone that is full; the fullest zone counts. In whole seconds, so that Postgres comes
-- to the same (see engine/policy.py).
local spare_s, cut_s = math.floor(ttl_ms / 1000) - min_ttl_s, 0
for i = 1, #zone_names do
  local capacity, _, held, sold = struct.unpack(ZONE, counts[i + 1])
  local over, whole = 100 * (held + sold) - adaptive_from * capacity, (100 - adaptive_from) * capacity
  if totals[zone_names[i]] > 0 and over > 0 and whole > 0 and spare_s > 0 then
    cut_s = math.max(cut_s, math.floor(spare_s * math.min(over, whole) / whole))
  end
end
ttl_ms = ttl_ms - 1000 * cut_s
