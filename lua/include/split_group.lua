-- Splits `units` seats into clusters within rows at most `split_rows` from the first to the last: a list of places in
-- the stretch and lengths, or nil. As few orphans as possible, then as few clusters; of the first windows of rows in
-- which it can be done the best one, unless an earlier one needs no more than two clusters. Only for a stretch that has
-- no block for the group. engine/choosing.py has the same limits, which keep a zone that is almost full affordable.
local MAX_WINDOWS = 8
local MAX_FIRST_ROWS = 400

-- Adds a run with seats that are not wanted to a row, in the parts that these make: for every number of seats the best
-- place and how many it leaves alone. Two such seats between parts never let one be left alone, whatever is taken on
-- either side; parts with one between them are one choice.
local function add_parts(row, stretch, first, length)
  local run, last = nil, 0
  for from, after in string.gmatch(string.sub(stretch, first, first + length - 1), '()%.+()') do
    if not run or from - last > 1 then
      run = { first, length, starts = {}, alone = {} }
      row[#row + 1] = run
    end
    last = after
    for count = 1, math.min(units, after - from) do
      local start, alone = best_start(stretch, first + from - 1, first + after - 1, count)
      if not run.starts[count] or alone < run.alone[count] then
        run.starts[count], run.alone[count] = start, alone
      end
    end
  end
end

local function row_at(stretch, first)
  local after = string.find(stretch, '|', first, true) or #stretch + 1
  local row, bytes = { following = after + 1, free = 0 }, string.sub(stretch, first, after - 1)
  for from, to in string.gmatch(bytes, ARG_CATEGORIES == '' and '()%.+()' or '()[.,]+()') do
    row.free = row.free + to - from
    if ARG_CATEGORIES ~= '' and string.find(string.sub(bytes, from, to - 1), ',', 1, true) then
      add_parts(row, stretch, first + from - 1, to - from)
    else
      row[#row + 1] = { first + from - 1, to - from }
    end
  end
  row.excused = 10 * row.free < after - first
  return row
end

-- The best way to take the seats from the runs of some rows: how many orphans and clusters, and these from the last to
-- the first. `taken[n]` is the best way to have n seats from the runs so far; of two as good the earlier stays.
local function fill(rows)
  local orphans, clusters, taken = { [0] = 0 }, { [0] = 0 }, {}
  for _, row in ipairs(rows) do
    local excused = row.excused
    for _, run in ipairs(row) do
      local first, length, starts, lone = run[1], run[2], run.starts, run.alone
      -- From many to few, so that a run is not used twice.
      for have = units - 1, 0, -1 do
        if orphans[have] then
          for more = math.min(length, units - have), 1, -1 do
            local start, alone = first, length - more == 1 and not excused and 1 or 0
            if starts then
              start, alone = starts[more], not excused and lone[more] or 0
            end
            if start and (alone == 0 or orphans_refused == 0) then
              local left, parts, known = orphans[have] + alone, clusters[have] + 1, orphans[have + more]
              if not known or left < known or left == known and parts < clusters[have + more] then
                orphans[have + more], clusters[have + more] = left, parts
                taken[have + more] = { start, more, taken[have] }
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
