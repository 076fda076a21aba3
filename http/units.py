"""Seats and zones by the ids under which clients know them, and the texts that go with requests about them."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.http.errors import Refused, problem, reason_of

Id = Annotated[str, Meta(min_length=1, max_length=200)]

# Postgres does not take the character NUL, and nobody needs the other control characters but tabs and newlines.
Notes = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$", description="why, for the audit")]


def find_seats(event: CompiledEvent, seat_ids: Sequence[str]) -> tuple[Pair, ...]:
    """Seats by their ids, each named once. Raises Refused, with the ids that the event does not have."""
    if unknown := tuple(seat for seat in seat_ids if seat not in event.seats):
        raise Refused(problem(reason_of(Status.SEAT_NOT_FOUND), seats=unknown))
    if len(set(seat_ids)) < len(seat_ids):
        raise Refused(problem("invalid_request", "A seat is named twice."))
    return tuple(event.seats[seat] for seat in seat_ids)


def find_zone(event: CompiledEvent, zone_id: str) -> int:
    """A zone by its id. Raises Refused if the event has none of that id."""
    zone = event.zone_index.get(zone_id)
    if zone is None:
        raise Refused(problem(reason_of(Status.SEAT_NOT_FOUND), zones=(zone_id,)))
    return zone
