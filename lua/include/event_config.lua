-- @include integer
-- Whether the arguments that configure an event are well formed.
local MAX_MS = 99999999999999
local states = { draft = true, published = true, live = true, closed = true, cancelled = true, archived = true }
local config_well_formed = #ARG_SCOPE == 32 and #ARG_META <= 4096 and #ARG_VERSION > 0 and #ARG_VERSION <= 64
  and not string.find(ARG_VERSION, '[%s%c]') and states[ARG_STATE]
  and integer(ARG_OPENS_MS, 0, MAX_MS) and integer(ARG_CLOSES_MS, 0, MAX_MS)
