-- @include left_alone
-- As include/find_clean_run.lua, for seats of the categories that are wanted: `kinds` has a letter for each place of
-- the map. A search goes from the next seats that are free to the next of the kind and back, until they meet. What it
-- rules out is noted in `kind_runs`, for all that are asked for together a line with a digit per block: at first the
-- digits of all seats, which cannot be too low. include/note_free_runs.lua raises them. It is written at once, also
-- when nothing is found: or the seats that are gone first would be looked for again by everybody who wants them.
-- `searched` keeps the zones that have any such seat.
local BLOCK_BYTES = 4096
local LONGEST = 8
local is_one_kind, lowered = #ARG_CATEGORIES == 1, false
local such_seat = is_one_kind and ARG_CATEGORIES or '[' .. ARG_CATEGORIES .. ']'
local free_seats, such_seats = string.rep('.', units), string.rep(such_seat, units)
local promising = '[' .. math.min(units, LONGEST) .. '-8]'
local bytes, kinds, past = nil, nil, nil
local function next_wanted(free_ones, such_ones, at)
  while at < past do
    local free = string.find(bytes, free_ones, at, true)
    local such = free and string.find(kinds, such_ones, free, is_one_kind)
    if not such or such >= past then
      return nil
    elseif such == free then
      return free
    end
    at = such
  end
  return nil
end

local kind_runs = call('HGET', KEY_COUNTS, 'kind_runs') or ''
local blocks, line = math.ceil(map_bytes / BLOCK_BYTES), '\n' .. ARG_CATEGORIES .. ':'
local _, line_at = string.find(kind_runs, line, 1, true)
if not line_at then
  kind_runs = kind_runs .. line .. known_runs .. string.rep('8', blocks - #known_runs)
  line_at = #kind_runs - blocks
end
local digits, with_some = string.sub(kind_runs, line_at + 1, line_at + blocks), {}
for i = 1, #searched do
  local first, last = firsts_of[searched[i]], lasts_of[searched[i]]
  local first_block, last_block = math.floor(first / BLOCK_BYTES) + 1, math.floor(last / BLOCK_BYTES) + 1
  local block, here = string.find(digits, promising, first_block), digits
  while block and block <= last_block do
    local block_first, block_end = (block - 1) * BLOCK_BYTES, block * BLOCK_BYTES
    -- With the two bytes on either side that tell whether somebody is left alone.
    local from = math.max(first, block_first - 2)
    local to = math.min(last, block_end + units)
    bytes, kinds = call('GETRANGE', KEY_MAP, from, to), call('GETRANGE', KEY_KINDS, from, to)
    past = block_end - from + 1
    local at = math.max(1, block_first - from + 1)
    local found = next_wanted(free_seats, such_seats, at)
    local any = found
    while found and left_alone(bytes, found, units) > 0 do
      found = next_wanted(free_seats, such_seats, found + 1)
    end
    if found then
      chosen, clusters = searched[i], { from + found - 1, units }
      break
    elseif not any then
      local single = units > 1 and next_wanted('.', such_seat, at)
      local left = single and math.min(units - 1, LONGEST) or 0
      here = string.sub(here, 1, block - 1) .. left .. string.sub(here, block + 1)
      -- A block that is not all this zone's may have such seats elsewhere.
      if first <= block_first and (block_end <= last or last + 2 >= map_bytes) then
        digits, lowered = string.sub(digits, 1, block - 1) .. left .. string.sub(digits, block + 1), true
      end
    end
    block = string.find(digits, promising, block + 1)
  end
  if chosen then
    break
  elseif (string.find(here, '[1-8]', first_block) or last_block + 1) <= last_block then
    with_some[#with_some + 1] = searched[i]
  end
end
searched = with_some
if lowered then
  kind_runs = string.sub(kind_runs, 1, line_at) .. digits .. string.sub(kind_runs, line_at + blocks + 1)
  call('HSET', KEY_COUNTS, 'kind_runs', kind_runs)
end
