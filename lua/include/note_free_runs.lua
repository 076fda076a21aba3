-- @include stretches
-- Keeps `runs` of `counts` true once the seats of the pairs are free in the map. A run that has become possible has one
-- of them in it, so it is enough to look at the few bytes around each: from no seat further away have the next eight
-- changed, and a separator ends every row. include/find_clean_run.lua says what the digits mean.
local BLOCK_BYTES = 4096
local LONGEST = 8
local REACH = 7
local function note_free_runs(seats)
  local known_runs, changed = call('HGET', KEY_COUNTS, 'runs'), false
  if not known_runs then
    return
  end
  local firsts, lengths = stretches(seats)
  for i = 1, #firsts do
    local first, after = firsts[i], firsts[i] + lengths[i]
    local from = math.max(0, first - REACH)
    local around = call('GETRANGE', KEY_MAP, from, after + REACH - 1)
    local begins = first - #string.match(string.sub(around, 1, first - from), '%.*$')
    local ends = after + #string.match(around, '^%.*', after - from + 1)
    for block = math.floor(begins / BLOCK_BYTES) + 1, math.floor((after - 1) / BLOCK_BYTES) + 1 do
      local longest = math.min(LONGEST, ends - math.max(begins, (block - 1) * BLOCK_BYTES))
      local known = tonumber(string.sub(known_runs, block, block))
      if known and known < longest then
        known_runs = string.sub(known_runs, 1, block - 1) .. longest .. string.sub(known_runs, block + 1)
        changed = true
      end
    end
  end
  if changed then
    call('HSET', KEY_COUNTS, 'runs', known_runs)
  end
end
