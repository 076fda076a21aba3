-- @include integer
-- Whether the arguments that configure an event are well formed. `access` has a byte each: how full a zone may be
-- before companion seats are no longer kept, percent; how many wheelchair seats a user may hold, 0 for any number; and
-- whether the audit is told of them.
local MAX_MS = 99999999999999
local states = { draft = true, published = true, live = true, closed = true, cancelled = true, archived = true }
local config_well_formed = #ARG_SCOPE == 32 and #ARG_META <= 4096 and #ARG_VERSION > 0 and #ARG_VERSION <= 64
  and not string.find(ARG_VERSION, '[%s%c]') and states[ARG_STATE]
  and (ARG_ACCESS == '' or #ARG_ACCESS == 3 and string.byte(ARG_ACCESS) <= 100)
  and integer(ARG_OPENS_MS, 0, MAX_MS) and integer(ARG_CLOSES_MS, 0, MAX_MS)
