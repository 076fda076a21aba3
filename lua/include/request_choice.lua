-- @include hold_rules
-- @include integer
-- Reads how many seats are asked for (`units`) and of which zones: their names, `fields` of `counts` and stretches of
-- the map, in order of preference. A zone listed twice is not well formed.
local MAX_UNITS = 100
local MAX_ORDINAL = 16777215
local MAX_STRETCHES_BYTES = 1000
local STRETCH = '>I2I4I4'
local STRETCH_BYTES = 10
local units, fields = integer(ARG_COUNT, 1, MAX_ORDINAL), { 'version' }
local zone_names, firsts_of, lasts_of, totals = {}, {}, {}, {}
well_formed = well_formed and units and #ARG_STRETCHES > 0 and #ARG_STRETCHES % STRETCH_BYTES == 0
  and #ARG_STRETCHES <= MAX_STRETCHES_BYTES
for at = 1, well_formed and #ARG_STRETCHES or 0, STRETCH_BYTES do
  local zone, first, last = struct.unpack(STRETCH, ARG_STRETCHES, at)
  well_formed = well_formed and first <= last and last <= MAX_ORDINAL and not totals[zone]
  local i = #zone_names + 1
  zone_names[i], fields[i + 1], firsts_of[i], lasts_of[i], totals[zone] = zone, zone, first, last, units
end
