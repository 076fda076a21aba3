-- The decision of the baseline that keeps nothing: a seat goes to the first who asks, for a while.
-- KEYS[1] the seat; ARGV[1] user, ARGV[2] hold, ARGV[3] time to live in ms. Returns the user and the hold that have the seat.
local taken = redis.call('HMGET', KEYS[1], 'user', 'hold')
if taken[1] then
    return taken
end
redis.call('HSET', KEYS[1], 'user', ARGV[1], 'hold', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return { ARGV[1], ARGV[2] }
