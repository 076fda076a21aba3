-- Looks at one block of the map, in turn, and lowers its digit in `runs` to what is there. Taking seats makes no digit
-- untrue; this is for the first search, which need not look again at blocks that were sold by name.
-- include/find_clean_run.lua says what the digits mean.
local BLOCK_BYTES = 4096
local LONGEST = 8
local bytes_in_map = call('STRLEN', KEY_MAP)
if bytes_in_map > 0 then
  local block = math.floor(shard_seq / HOLDS_PER_LOOK) % math.ceil(bytes_in_map / BLOCK_BYTES) + 1
  local known_runs = call('HGET', KEY_COUNTS, 'runs') or ''
  known_runs = known_runs .. string.rep('8', block - #known_runs)
  local known, first = tonumber(string.sub(known_runs, block, block)), (block - 1) * BLOCK_BYTES
  local longest, bytes = known, call('GETRANGE', KEY_MAP, first, first + BLOCK_BYTES + LONGEST - 2)
  while longest > 0 and (string.find(bytes, string.rep('.', longest), 1, true) or BLOCK_BYTES + 1) > BLOCK_BYTES do
    longest = longest - 1
  end
  if longest < known then
    call('HSET', KEY_COUNTS, 'runs',
      string.sub(known_runs, 1, block - 1) .. longest .. string.sub(known_runs, block + 1))
  end
end
