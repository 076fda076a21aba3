-- Whether this user and this address may reserve `units` more: `refusal` and the time it lifts (0: not by waiting). It
-- shortens the lists read from `holds` by what no longer matters. An address is followed only where a limit asks.
local MAX_LIST_BYTES = 2048
local user_live, user_recent, user_usage, address_live, address_usage = 0, 0, nil, 0, nil
if user_list or address_list then
  -- @include recent_holds
  if user_list then
    user_usage = recent_holds(user_list)
    user_live, user_recent, user_list = user_usage.live, user_usage.recent, user_usage.listed
  end
  if address_list then
    address_usage = recent_holds(address_list)
    address_live, address_list = address_usage.live, address_usage.listed
  end
end
if user_units > 0 and user_live + units > user_units or user_list and #user_list >= MAX_LIST_BYTES then
  refusal, lifts_ms = USER_LIMIT_EXCEEDED, user_usage and user_usage.first_end_ms or 0
elseif follow_address
  and (address_live + units > address_units or address_list and #address_list >= MAX_LIST_BYTES) then
  refusal, lifts_ms = ADDRESS_LIMIT_EXCEEDED, address_usage and address_usage.first_end_ms or 0
elseif window_units > 0 and user_recent + units > window_units then
  refusal = RATE_LIMIT_EXCEEDED
  local excess = user_recent + units - window_units
  for i, reserved_ms in ipairs(user_usage and user_usage.reserved_ms or {}) do
    excess = excess - user_usage.reserved_units[i]
    if excess <= 0 then
      lifts_ms = reserved_ms + window_ms
      break
    end
  end
end
