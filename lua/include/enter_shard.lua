-- Reads the fence (`open` is the epoch), the number of the last log entry and the persisted mark in one step, and
-- the server's clock. shard_epoch is false when the fence is down.
local call = redis.call
local shard = call('MGET', KEY_OPEN, KEY_SEQ, KEY_MARK)
local clock = call('TIME')
local now_ms = clock[1] * 1000 + clock[2] / 1000
now_ms = now_ms - now_ms % 1
local shard_epoch, shard_seq = shard[1], (shard[2] or 0) + 0
