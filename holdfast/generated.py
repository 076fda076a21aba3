"""Events to try things on: halls of any size, made by rule rather than read from a file."""

import uuid
from collections.abc import Callable, Iterator

from holdfast.engine.layout import Coordinates, EventDocument, SeatDocument, ZoneDocument, ZoneType

MAX_SEATS = 1_000_000
ROWS = 25
SEATS_PER_ROW = 40
SECTION = ROWS * SEATS_PER_ROW
# Room between neighbouring sections on the plan, in seats.
GANGWAY = 4

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://holdfast.invalid/generated")


def arena(seats: int) -> EventDocument:
    """Sections of 25 rows of 40 seats, the last one as small as is left. The same number gives the same event."""
    sections = range(0, seats, SECTION)
    zones = tuple(_section(index, min(SECTION, seats - first)) for index, first in enumerate(sections))
    return EventDocument(
        event_id=uuid.uuid5(_NAMESPACE, f"arena/{seats}"), name=f"Arena of {seats:,} seats", zones=zones
    )


def _section(index: int, seats: int) -> ZoneDocument:
    name = str(101 + index)
    return ZoneDocument(name, ZoneType.RESERVED_SEATING, f"Section {name}", seats, tuple(_seats(name, index, seats)))


def _seats(section: str, index: int, count: int) -> Iterator[SeatDocument]:
    for at in range(count):
        row, number = at // SEATS_PER_ROW, at % SEATS_PER_ROW
        letter = chr(ord("A") + row)
        place = Coordinates(index * (SEATS_PER_ROW + GANGWAY) + number, row)
        yield SeatDocument(f"{section}-{letter}-{number + 1}", letter, number + 1, coordinates=place)


GENERATORS: dict[str, Callable[[int], EventDocument]] = {"arena": arena}
