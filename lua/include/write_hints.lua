-- Notes that no run of `units` free seats starts before the end of the one just taken.
if units <= HINTED_UNITS then
  local known = hints or string.rep('\0', 4 * HINTED_UNITS)
  local noted = struct.pack('>I4', run + units)
  known = string.sub(known, 1, 4 * units - 4) .. noted .. string.sub(known, 4 * units + 1)
  call('HSET', KEY_COUNTS, hints_field, known)
end
