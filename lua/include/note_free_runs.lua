-- @include stretches
-- Keeps `runs` of `counts` true once the seats of the pairs are free in the map. A run that has become possible has one
-- of them in it, so it is enough to look at the few bytes around each: from no seat further away have the next eight
-- changed, and a separator ends every row. include/find_clean_run.lua says what the digits mean. What is known of seats
-- of some category (include/find_wanted_run.lua) is forgotten for the blocks around.
local BLOCK_BYTES = 4096
local LONGEST = 8
local REACH = 7
local function note_free_runs(seats)
  local stored = call('HMGET', KEY_COUNTS, 'runs', 'kind_runs')
  local known_runs, kind_runs, changed = stored[1], stored[2], false
  if not known_runs and not kind_runs then
    return
  end
  local firsts, lengths = stretches(seats)
  if kind_runs then
    for i = 1, #firsts do
      local from, to = math.max(0, firsts[i] - REACH), firsts[i] + lengths[i] - 1
      for block = math.floor(from / BLOCK_BYTES) + 1, math.floor(to / BLOCK_BYTES) + 1 do
        kind_runs = string.gsub(kind_runs, '%d+', function(digits)
          return string.sub(digits, 1, block - 1) .. LONGEST .. string.sub(digits, block + 1)
        end)
      end
    end
    call('HSET', KEY_COUNTS, 'kind_runs', kind_runs)
  end
  known_runs = known_runs or ''
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
