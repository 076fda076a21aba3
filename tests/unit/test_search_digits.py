"""The digits by which Redis passes over blocks of an event's map."""

import pytest

from holdfast.engine.search_digits import SEARCH_BLOCK_BYTES, search_digits


@pytest.mark.parametrize(
    ("seat_map", "digits"),
    [
        (b"", b""),
        (b"ssss|", b"0"),
        (b"s.s..s|...|", b"3"),
        (b"." * 9 + b"|", b"8"),
        # A run over the end of a block counts in full in the first, and in the second from where that begins.
        (b"s" * (SEARCH_BLOCK_BYTES - 3) + b"....." + b"|", b"52"),
        (b"." * (3 * SEARCH_BLOCK_BYTES), b"888"),
        (b"s" * SEARCH_BLOCK_BYTES + b"." + b"s" * SEARCH_BLOCK_BYTES, b"010"),
    ],
)
def test_a_digit_is_the_longest_run_from_any_seat_of_its_block_on(seat_map: bytes, digits: bytes) -> None:
    assert search_digits(seat_map) == digits
