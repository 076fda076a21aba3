"""Events whose seats are free as a drawing says: a byte per seat, rows ended by a separator."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

from holdfast.engine.layout import EventDocument, EventState, SeatDocument, ZoneDocument, ZoneType
from holdfast.engine.policy import Policy


def drawn_event(drawings: Sequence[str], policy: Policy) -> EventDocument:
    """An event with a zone per drawing. Seats that are not free are blocked."""
    zones, blocked = [], set()
    for index, drawing in enumerate(drawings):
        seats = tuple(_seats(index, drawing))
        blocked |= {seat.seat_id for seat, byte in zip(seats, drawing.replace("|", ""), strict=True) if byte != "."}
        zones.append(ZoneDocument(f"zone-{index}", ZoneType.RESERVED_SEATING, f"Zone {index}", len(seats), seats))
    return EventDocument(
        event_id=uuid4(),
        name="Drawn",
        zones=tuple(zones),
        state=EventState.LIVE,
        policy=policy,
        blocked_seat_ids=frozenset(blocked),
    )


def _seats(zone: int, drawing: str) -> Iterator[SeatDocument]:
    for number, row in enumerate(drawing.split("|"), 1):
        for seat in range(1, len(row) + 1):
            yield SeatDocument(seat_id=f"{zone}-{number}-{seat}", row=f"{number}", number=seat)
