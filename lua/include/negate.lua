-- The same units by zone, taken away instead of added.
local function negate(totals)
  local negated = {}
  for zone, units in pairs(totals) do
    negated[zone] = -units
  end
  return negated
end
