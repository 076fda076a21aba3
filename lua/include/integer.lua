-- The whole number that `text` spells, if it lies within low and high; otherwise nil.
local function integer(text, low, high)
  local number = string.find(text, '^%d+$') and #text <= 15 and tonumber(text)
  return number and number >= low and number <= high and number or nil
end
