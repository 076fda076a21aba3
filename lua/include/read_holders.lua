-- Reads what is on record under this hold id, and the lists of holds of this user and, where a limit asks, this
-- address.
local follow_address = address_units > 0 and ARG_ADDRESS ~= ''
local user_field, address_field, listed = 'u' .. ARG_USER, nil, nil
if follow_address then
  address_field = 'a' .. ARG_ADDRESS
  listed = call('HMGET', KEY_HOLDS, ARG_HOLD, user_field, address_field)
else
  listed = call('HMGET', KEY_HOLDS, ARG_HOLD, user_field)
end
local on_record, user_list, address_list = listed[1], listed[2], listed[3]
