-- Whether the event sells now, under the configuration the caller compiled: `refusal` and the time it may lift, or nil.
local refusal, lifts_ms = nil, 0
if event_version ~= ARG_VERSION then
  refusal = STALE_CONFIG
elseif selling ~= 1 then
  refusal = selling == 2 and EVENT_UNAVAILABLE or EVENT_NOT_AVAILABLE
elseif now_ms < opens_ms then
  refusal, lifts_ms = EVENT_SALES_CLOSED, opens_ms
elseif closes_ms > 0 and now_ms > closes_ms then
  refusal = EVENT_SALES_CLOSED
elseif max_backlog > 0 and shard_seq - tonumber(shard[3] or 0) >= max_backlog then
  refusal = BUSY
end
