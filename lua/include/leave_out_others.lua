-- A stretch of the map from an ordinal on in which the free seats of categories that are not wanted are commas.
local others = '[^' .. ARG_CATEGORIES .. ']'
local function leave_out_others(stretch, first)
  local kinds = call('GETRANGE', KEY_KINDS, first, first + #stretch - 1)
  local pieces, done = {}, 1
  for from, after in string.gmatch(stretch, '()%.+()') do
    local run = string.sub(kinds, from, after - 1)
    if string.find(run, others) then
      pieces[#pieces + 1] = string.sub(stretch, done, from - 1)
      pieces[#pieces + 1] = string.gsub(string.gsub(run, others, ','), '[^,]', '.')
      done = after
    end
  end
  pieces[#pieces + 1] = string.sub(stretch, done)
  return table.concat(pieces)
end
