-- Reads the fence (`open` is the epoch), the number of the last log entry and the persisted mark in one step, and
-- the server's clock. shard_epoch is false when the fence is down.
local call = redis.call
local shard = call('MGET', KEY_OPEN, KEY_SEQ, KEY_MARK)
local clock = call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local shard_epoch, shard_seq = shard[1], tonumber(shard[2] or 0)
