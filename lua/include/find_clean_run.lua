-- @include clean_run
-- Finds seats next to each other that leave nobody alone, in the zones `searched` in their order: `chosen` is the place
-- of the zone in `zone_names` and `clusters` the first ordinal and the number of seats, or nil.
-- The map is read in blocks. `known_runs` has a digit per block: no more free seats follow each other from any seat of
-- the block on (8 means 8 or more; what was never looked at is 8). What an earlier search has ruled out is therefore
-- passed over, until seats come free there (see include/note_free_runs.lua). A block may have runs long enough and none
-- that is clean, and then is read again. `ruled_out` says whether this search has lowered digits.
local BLOCK_BYTES = 4096
local LONGEST = 8
local promising = '[' .. math.min(units, LONGEST) .. '-8]'
for i = 1, #searched do
  local first, last = firsts_of[searched[i]], lasts_of[searched[i]]
  local last_block = math.floor(last / BLOCK_BYTES) + 1
  if #known_runs < last_block then
    known_runs = known_runs .. string.rep('8', last_block - #known_runs)
  end
  local block = string.find(known_runs, promising, math.floor(first / BLOCK_BYTES) + 1)
  while block and block <= last_block do
    local block_first, block_end = (block - 1) * BLOCK_BYTES, block * BLOCK_BYTES
    -- With the byte before, which tells whether a run begins here or goes on.
    local from = math.max(first, block_first - 1)
    local bytes = call('GETRANGE', KEY_MAP, from, math.min(last, block_end + units))
    local any = string.find(bytes, wanted, math.max(1, block_first - from + 1), true)
    if any and from + any <= block_end then
      local at = 1
      if from < block_first and string.byte(bytes) == FREE then
        at = string.find(bytes, '[^.]')
      end
      local found = at and clean_run(bytes, math.max(at, any))
      if found and from + found <= block_end then
        chosen, clusters = searched[i], { from + found - 1, units }
        break
      end
    elseif units <= LONGEST and first <= block_first and block_end <= last then
      -- A block that is not all this zone's cannot be ruled out, nor can the run of eight that begins a longer one.
      known_runs = string.sub(known_runs, 1, block - 1) .. units - 1 .. string.sub(known_runs, block + 1)
      ruled_out = true
    end
    block = string.find(known_runs, promising, block + 1)
  end
  if chosen then
    break
  end
end
