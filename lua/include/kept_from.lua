-- @include layout
-- @include zone_counters
-- Whether a companion seat that is free, or about to be, is kept from a user (empty for anybody): one of its wheelchair
-- seats is taken, whoever took that has not declined it, and the zone is not yet as full as the policy says. It is kept
-- from nobody who has one of its wheelchair seats, or asks for it in the same call (`asked`, by ordinal). `paired` is
-- the seat's field of `counts`: its byte while free, then the wheelchair seats that it belongs to.
local function kept_from(user, paired, asked)
  local kept_in = nil
  for at = 2, #paired, PAIR_BYTES do
    local zone, ordinal = struct.unpack(PAIR, paired, at)
    local byte = call('GETRANGE', KEY_MAP, ordinal, ordinal)
    local taken = byte == 's'
    if byte == 'h' then
      local owner = call('GETRANGE', KEY_OWNERS, ordinal * ID_BYTES, ordinal * ID_BYTES + ID_BYTES - 1)
      taken = tonumber(call('ZSCORE', KEY_EXPIRY, owner)) > now_ms
    end
    local taker = taken and call('HGET', KEY_COUNTS, 'w' .. ordinal) or ''
    if asked[ordinal] or taker ~= '' and string.sub(taker, 1, ID_BYTES) == user then
      return false
    elseif #taker == ID_BYTES then
      kept_in = zone
    end
  end
  if not kept_in then
    return false
  end
  local capacity, _, held, sold = zone_counters(kept_in)
  return 100 * (held + sold) < string.byte(call('HGET', KEY_COUNTS, 'access')) * capacity
end
