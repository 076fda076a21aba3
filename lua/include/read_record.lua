-- @include layout
-- The fields of a hold's record.
local function read_record(record)
  local user, state, seq, created_ms, ttl_ms, seat_count, quantity_count, from = struct.unpack(RECORD, record)
  local seats_end = from - 1 + seat_count * PAIR_BYTES
  local pairs_end = seats_end + quantity_count * PAIR_BYTES
  local fingerprint, address, cart, checkout, extension =
    string.match(record, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$', pairs_end + 1)
  return { user = user, state = state, seq = seq, created_ms = created_ms, ttl_ms = ttl_ms,
    seats = string.sub(record, from, seats_end), quantities = string.sub(record, seats_end + 1, pairs_end),
    fingerprint = fingerprint, address = address, cart = cart, checkout = checkout, extension = extension }
end
