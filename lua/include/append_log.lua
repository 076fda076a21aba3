-- @include layout
-- Appends the next log entry. Entries are numbered without a gap; the stream id is '<epoch>-<number>'.
local function append_log(operation, holds, body)
  shard_seq = shard_seq + 1
  local number = string.format('%d', shard_seq)
  call('XADD', KEY_LOG, shard_epoch .. '-' .. number, 'op', operation, 'head', struct.pack(HEAD, now_ms, ARG_SCOPE),
    'holds', holds, 'body', body, 'meta', ARG_META)
  call('SET', KEY_SEQ, number)
end
