-- How values are packed, big-endian; engine/records.py reads the same layouts. (A large number given to redis.call as
-- such costs a microsecond to format: pack it, or format it with %d.)
-- A log entry's head is the time in ms, the organisation and the event.
-- A pair is a zone and either the ordinal of a seat or a quantity. A zone counts capacity, seats (none for general
-- admission), held, sold and blocked. A hold record is the user's id, the state, the number of the log entry that
-- last changed it, when it was made, its first time to live, how many seat and quantity pairs it has; then these
-- pairs; then fingerprint, address, cart, checkout and extension key, a newline between each two.
local HEAD = '>I8c32'
local PAIR = '>I2I4'
local PAIR_BYTES = 6
local ZONE = '>I4I4I4I4I4'
local RECORD = '>c16c1I8I8I4I2I2'
local RECORD_HEAD_BYTES = 41
local ID_BYTES = 16
local STATE_HELD = 'h'
local STATE_SOLD = 's'
local STATE_RELEASED = 'r'
local STATE_EXPIRED = 'x'
