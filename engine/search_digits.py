"""What the search for neighbours in Redis knows beforehand of a map: a digit per block (docs/decisions/003)."""

import re

SEARCH_BLOCK_BYTES = 4096
LONGEST_RUN = 8

_FREE_SEATS = re.compile(rb"\.+")


def search_digits(seat_map: bytes) -> bytes:
    """For each block of the map how many free seats follow each other at most, from any seat of the block on."""
    longest = bytearray(-(-len(seat_map) // SEARCH_BLOCK_BYTES))
    for run in _FREE_SEATS.finditer(seat_map):
        start, end = run.span()
        for block in range(start // SEARCH_BLOCK_BYTES, (end - 1) // SEARCH_BLOCK_BYTES + 1):
            follow = min(LONGEST_RUN, end - max(start, block * SEARCH_BLOCK_BYTES))
            longest[block] = max(longest[block], follow)
    return b"".join(b"%d" % digit for digit in longest)
