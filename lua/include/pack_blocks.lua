-- @include layout
-- The seats and quantities of several holds for a log entry: how many of each, then the pairs, hold after hold.
local function pack_blocks(holds)
  local blocks = {}
  for i = 1, #holds do
    local seats, quantities = holds[i].seats, holds[i].quantities
    blocks[i] = struct.pack('>I2I2', #seats / PAIR_BYTES, #quantities / PAIR_BYTES) .. seats .. quantities
  end
  return table.concat(blocks)
end
