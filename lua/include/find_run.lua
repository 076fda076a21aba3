-- Finds the first `units` free seats in a row between the ordinals `first` and `last`: `run` is the ordinal of the
-- first of them, or nil. The map is read in blocks. `known_runs` has a digit per block: no more free seats follow each
-- other from any seat of the block on (8 means 8 or more; what was never looked at is 8). What an earlier search has
-- ruled out is therefore passed over, until seats come free there (see include/note_free_runs.lua). `ruled_out` says
-- whether this search has lowered digits.
local BLOCK_BYTES = 4096
local LONGEST = 8
local wanted, run, ruled_out = string.rep('.', units), nil, false
local last_block = math.floor(last / BLOCK_BYTES) + 1
if #known_runs < last_block then
  known_runs = known_runs .. string.rep('8', last_block - #known_runs)
end
local promising = '[' .. math.min(units, LONGEST) .. '-8]'
local block = string.find(known_runs, promising, math.floor(first / BLOCK_BYTES) + 1)
while not run and block and block <= last_block do
  local block_first, block_end = (block - 1) * BLOCK_BYTES, block * BLOCK_BYTES
  local from = math.max(first, block_first)
  local found = string.find(call('GETRANGE', KEY_MAP, from, math.min(last, block_end + units - 2)), wanted, 1, true)
  if found then
    run = from + found - 1
  else
    -- A block that is not all this zone's cannot be ruled out, nor can the run of eight that begins a longer one.
    if units <= LONGEST and from == block_first and block_end <= last then
      known_runs = string.sub(known_runs, 1, block - 1) .. units - 1 .. string.sub(known_runs, block + 1)
      ruled_out = true
    end
    block = string.find(known_runs, promising, block + 1)
  end
end
