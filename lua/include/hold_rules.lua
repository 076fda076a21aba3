-- @include layout
-- Reads the rules of the compiled event, and whether the arguments every new hold has are well formed. The rules are
-- packed numbers; zero means no limit:
--   selling          1 while the event's state allows sales, 2 when it is cancelled, else 0
--   opens_ms         when sales open
--   closes_ms        when sales close
--   max_backlog      how far the log may run ahead of the persisted mark, entries
--   max_units        units in one call, at most 100 whatever it says
--   user_units       live units per user
--   address_units    live units per address
--   window_units     units a user may reserve within the window
--   window_ms        length of that window
--   retention_ms     how long ended holds stay on record
--   orphans_refused  1 where no seat may be left alone, unless its row is almost sold
--   split_rows       in how many rows behind each other a group may sit that has no block; 0 keeps it together
--   orphans_noted    1 where the log says which seats a hold leaves alone
--   min_ttl_s        seconds that a hold lives at least where times become shorter as zones fill up; 0: they do not
--   adaptive_from    the percentage of a zone that is held or sold from which on they do
local RULES = '>BI8I8I4I2I4I4I4I4I4BBBI4B'
local RULES_BYTES = 51
local well_formed = #ARG_RULES == RULES_BYTES and #ARG_SCOPE == 32 and #ARG_HOLD == ID_BYTES and #ARG_USER == ID_BYTES
  and #ARG_FINGERPRINT <= 16 and #ARG_ADDRESS <= 14 and #ARG_CART <= 255 and #ARG_META <= 4096
  and not string.find(ARG_FINGERPRINT .. ARG_ADDRESS .. ARG_CART, '\n', 1, true)
local ttl_ms = tonumber(ARG_TTL_MS)
local selling, opens_ms, closes_ms, max_backlog, max_units
local user_units, address_units, window_units, window_ms, retention_ms, orphans_refused, split_rows, orphans_noted
local min_ttl_s, adaptive_from
if well_formed and ttl_ms and ttl_ms % 1 == 0 and ttl_ms >= 1000 and ttl_ms <= 86400000 then
  selling, opens_ms, closes_ms, max_backlog, max_units, user_units, address_units, window_units, window_ms,
    retention_ms, orphans_refused, split_rows, orphans_noted, min_ttl_s, adaptive_from = struct.unpack(RULES, ARG_RULES)
else
  well_formed = false
end
