-- Statuses, one byte each.
local function pack_bytes(numbers)
  local bytes = {}
  for i = 1, #numbers do
    bytes[i] = string.char(numbers[i])
  end
  return table.concat(bytes)
end
