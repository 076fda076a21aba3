"""Events whose seats are free as a drawing says: a byte per seat, rows ended by a separator."""

from collections.abc import Collection, Iterator, Sequence
from uuid import uuid4

from holdfast.engine.layout import (
    CompiledEvent,
    EventDocument,
    EventState,
    SeatCategory,
    SeatDocument,
    Zone,
    ZoneDocument,
    ZoneType,
)
from holdfast.engine.policy import Policy

_CATEGORIES = {"r": SeatCategory.RESTRICTED_VIEW, "i": SeatCategory.AISLE}


def drawn_event(drawings: Sequence[str], policy: Policy) -> EventDocument:
    """An event with a zone per drawing. Seats that are not free are blocked; `r` and `i` are free seats with restricted
    view and at the aisle."""
    zones, blocked = [], set()
    for index, drawing in enumerate(drawings):
        seats = tuple(_seats(index, drawing))
        blocked |= {
            seat.seat_id for seat, byte in zip(seats, drawing.replace("|", ""), strict=True) if byte not in ".ri"
        }
        zones.append(ZoneDocument(f"zone-{index}", ZoneType.RESERVED_SEATING, f"Zone {index}", len(seats), seats))
    return EventDocument(
        event_id=uuid4(),
        name="Drawn",
        zones=tuple(zones),
        state=EventState.LIVE,
        policy=policy,
        blocked_seat_ids=frozenset(blocked),
    )


def without_others(event: CompiledEvent, zone: Zone, stretch: bytes, categories: Collection[SeatCategory]) -> bytes:
    """A zone's stretch of the map, in which free seats of categories that are not wanted are commas."""
    if not categories:
        return stretch
    return bytes(
        ord(",") if byte == ord(".") and event.seat_at[zone.first + at].category not in categories else byte
        for at, byte in enumerate(stretch)
    )


def _seats(zone: int, drawing: str) -> Iterator[SeatDocument]:
    for number, row in enumerate(drawing.split("|"), 1):
        for seat, byte in enumerate(row, 1):
            category = _CATEGORIES.get(byte, SeatCategory.STANDARD)
            yield SeatDocument(seat_id=f"{zone}-{number}-{seat}", row=f"{number}", number=seat, category=category)
