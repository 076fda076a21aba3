-- @include layout
-- A hold's fields as its record.
local function write_record(hold)
  return struct.pack(RECORD, hold.user, hold.state, hold.seq, hold.created_ms, hold.ttl_ms,
    #hold.seats / PAIR_BYTES, #hold.quantities / PAIR_BYTES)
    .. hold.seats .. hold.quantities
    .. table.concat({ hold.fingerprint, hold.address, hold.cart, hold.checkout, hold.extension }, '\n')
end
