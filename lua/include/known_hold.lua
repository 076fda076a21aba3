-- @include read_record
-- What a hold id already on record means for a new request under it: the first result while the hold lives or is sold,
-- else how it ended since, or that the id was used for something else.
local hold = read_record(on_record)
local ends_ms = tonumber(call('ZSCORE', KEY_EXPIRY, ARG_HOLD) or 0)
if hold.user ~= ARG_USER or hold.fingerprint ~= ARG_FINGERPRINT then
  return { HOLD_ID_REUSED, '', 0, now_ms, 0, '', '' }
elseif hold.state == STATE_RELEASED then
  return { HOLD_RELEASED, '', 0, now_ms, 0, '', '' }
elseif hold.state == STATE_EXPIRED or hold.state == STATE_HELD and ends_ms <= now_ms then
  return { HOLD_EXPIRED, '', 0, now_ms, 0, '', '' }
end
return { REPEATED, ARG_HOLD, ends_ms, now_ms, hold.seq, hold.seats, hold.quantities }
