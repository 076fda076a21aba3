-- Picks the refusal of an operation that is all or nothing: the lowest of the outcomes in the order given, or nil.
-- Outcomes are statuses, one per hold.
local function refuse_first(outcomes, order)
  for _, status in ipairs(order) do
    for i = 1, #outcomes do
      if outcomes[i] == status then
        return status
      end
    end
  end
  return nil
end
