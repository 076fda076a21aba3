-- @include kept_from
-- @include paired_seat
-- A seat asked for that is free but not an ordinary one, or that a hold past its time gives back: a companion seat may
-- be kept for somebody else, a wheelchair seat goes to `wheelchairs`.
local paired = paired_seat(ordinal)
if paired and string.sub(paired, 1, 1) == 'w' then
  wheelchairs = wheelchairs or {}
  wheelchairs[#wheelchairs + 1] = string.sub(seats, at, at + PAIR_BYTES - 1)
elseif paired then
  local asked = {}
  for place = 1, #seats, PAIR_BYTES do
    local _, other = struct.unpack(PAIR, seats, place)
    asked[other] = true
  end
  if kept_from(ARG_USER, paired, asked) then
    status, free_at_ms = SEAT_NOT_AVAILABLE, 0
  end
end
