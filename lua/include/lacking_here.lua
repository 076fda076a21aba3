-- Of what zones lack, only what the chosen one does is of concern.
if short ~= '' then
  local lacking_here = ''
  for at = 1, #short, PAIR_BYTES do
    if struct.unpack(PAIR, short, at) == zone then
      lacking_here = string.sub(short, at, at + PAIR_BYTES - 1)
    end
  end
  short = lacking_here
end
