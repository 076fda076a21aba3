"""docs/seating.md names tests that exist, and every test of the sections without a file of their own."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
MAP = (TESTS.parent / "docs" / "seating.md").read_text()
NAMED = set(re.findall(r"`(test_\w+)`", MAP))


def _tests_in(*paths: Path) -> set[str]:
    return {
        name for path in paths for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_every_test_that_is_named_is_there() -> None:
    assert NAMED
    assert NAMED - _tests_in(*TESTS.rglob("test_*.py")) == set()


def test_every_section_is_in_the_table() -> None:
    """Seats of two rows are the one rule that no section spells out."""
    own = _tests_in(TESTS / "conformance" / "test_seating_sections.py")
    assert own - NAMED == {"test_a_seat_of_two_rows_is_no_neighbour"}
