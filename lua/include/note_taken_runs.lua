-- Looks at some blocks of the map and lowers their digits in `runs` to what is there. Taking seats makes no digit
-- untrue; this is for the first search, which need not look again at what was taken by name or blocked.
-- include/find_clean_run.lua says what the digits mean.
local BLOCK_BYTES = 4096
local LONGEST = 8
local function note_taken_runs(first_block, last_block)
  local known_runs, lowered = call('HGET', KEY_COUNTS, 'runs') or '', false
  known_runs = known_runs .. string.rep('8', last_block - #known_runs)
  for block = first_block, last_block do
    local known, first = tonumber(string.sub(known_runs, block, block)), (block - 1) * BLOCK_BYTES
    local longest, bytes = known, call('GETRANGE', KEY_MAP, first, first + BLOCK_BYTES + LONGEST - 2)
    while longest > 0 and (string.find(bytes, string.rep('.', longest), 1, true) or BLOCK_BYTES + 1) > BLOCK_BYTES do
      longest = longest - 1
    end
    if longest < known then
      known_runs = string.sub(known_runs, 1, block - 1) .. longest .. string.sub(known_runs, block + 1)
      lowered = true
    end
  end
  if lowered then
    call('HSET', KEY_COUNTS, 'runs', known_runs)
  end
end
