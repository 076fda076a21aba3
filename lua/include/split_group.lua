-- Splits `units` seats into clusters within rows at most `split_rows` from the first to the last: a list of places in
-- the stretch and lengths, or nil. As few orphans as possible, then as few clusters; of the first windows of rows in
-- which it can be done the best one, unless an earlier one needs no more than two clusters. Only for a stretch that has
-- no block for the group. engine/choosing.py has the same limits, which keep a zone that is almost full affordable.
local MAX_WINDOWS = 8
local MAX_FIRST_ROWS = 400

local function row_at(stretch, first)
  local after = string.find(stretch, '|', first, true) or #stretch + 1
  local row = { following = after + 1, free = 0 }
  for from, to in string.gmatch(string.sub(stretch, first, after - 1), '()%.+()') do
    row[#row + 1] = { first + from - 1, to - from }
    row.free = row.free + to - from
  end
  row.excused = 10 * row.free < after - first
  return row
end

-- The best way to take the seats from the runs of some rows: how many orphans and clusters, and these from the last to
-- the first. `taken[n]` is the best way to have n seats from the runs so far; of two as good the earlier stays.
local function fill(rows)
  local orphans, clusters, taken = { [0] = 0 }, { [0] = 0 }, {}
  for _, row in ipairs(rows) do
    for _, run in ipairs(row) do
      local length = run[2]
      -- From many to few, so that a run is not used twice.
      for have = units - 1, 0, -1 do
        if orphans[have] then
          for more = math.min(length, units - have), 1, -1 do
            local alone = length - more == 1 and not row.excused and 1 or 0
            if alone == 0 or orphans_refused == 0 then
              local left, parts, known = orphans[have] + alone, clusters[have] + 1, orphans[have + more]
              if not known or left < known or left == known and parts < clusters[have + more] then
                orphans[have + more], clusters[have + more] = left, parts
                taken[have + more] = { run[1], more, taken[have] }
              end
            end
          end
        end
      end
    end
  end
  return orphans[units], clusters[units], taken[units]
end

local function split_group(stretch)
  local known, best, best_orphans, best_clusters, windows, first_rows = {}, nil, nil, nil, 0, 0
  local free = string.find(stretch, '.', 1, true)
  local first = 1
  while free and windows < MAX_WINDOWS and first_rows < MAX_FIRST_ROWS do
    local separator = string.find(stretch, '|', first, true)
    while separator and separator < free do
      first = separator + 1
      separator = string.find(stretch, '|', first, true)
    end
    first_rows = first_rows + 1
    local rows, seats, at = {}, 0, first
    while #rows < split_rows and at <= #stretch do
      known[at] = known[at] or row_at(stretch, at)
      rows[#rows + 1], seats, at = known[at], seats + known[at].free, known[at].following
    end
    if seats >= units then
      local orphans, clusters, taken = fill(rows)
      if orphans then
        windows = windows + 1
        if not best or orphans < best_orphans or orphans == best_orphans and clusters < best_clusters then
          best, best_orphans, best_clusters = taken, orphans, clusters
        end
        if best_orphans == 0 and best_clusters == 2 then
          break
        end
      end
    end
    first = known[first].following
    free = string.find(stretch, '.', first, true)
  end
  if not best then
    return nil
  end
  local clusters = {}
  while best do
    table.insert(clusters, 1, best[2])
    table.insert(clusters, 1, best[1])
    best = best[3]
  end
  return clusters
end
