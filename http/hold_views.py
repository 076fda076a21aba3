"""Holds and what they consist of, as replies show them."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.engine.backend import StoredHold
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.http.holding import time_left

# What becomes of a hold, by the state that is on record.
_STATES = {"h": "held", "s": "converted", "r": "cancelled", "x": "expired"}


class HeldSeat(msgspec.Struct, frozen=True):
    """A seat of a hold."""

    seat_id: str
    block_name: str
    row: str
    seat_number: str


class HeldQuantity(msgspec.Struct, frozen=True):
    """Places of a hold."""

    zone_id: str
    block_name: str
    quantity: int


class HoldView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hold, as its owner sees it."""

    hold_id: UUID
    event_id: UUID
    status: str
    seats: tuple[HeldSeat, ...]
    quantities: tuple[HeldQuantity, ...]
    held_until: datetime | None = None
    held_until_unix: int | None = None
    expires_in_seconds: int | None = None
    cart_token: str | None = None
    checkout_id: str | None = None
    message: str | None = None
    durability: str | None = None


def hold_view(event: CompiledEvent, stored: StoredHold, now_ms: int) -> HoldView:
    """A hold on record as its owner sees it."""
    record, status = stored.record, _STATES[stored.record.state]
    is_live = status == "held" and stored.ends_ms > now_ms
    held_until, left_s = time_left(stored.ends_ms, now_ms) if is_live else (None, None)
    return HoldView(
        hold_id=stored.hold_id,
        event_id=event.event_id,
        # Its time is over, and nobody has come by to write that down.
        status="expired" if status == "held" and not is_live else status,
        seats=held_seats(event, record.seats),
        quantities=held_quantities(event, record.quantities),
        held_until=held_until,
        held_until_unix=stored.ends_ms // 1000 if is_live else None,
        expires_in_seconds=left_s,
        cart_token=record.cart or None,
        checkout_id=record.checkout or None,
    )


def held_seats(event: CompiledEvent, seats: Iterable[Pair]) -> tuple[HeldSeat, ...]:
    """Seats by zone and ordinal, described."""
    found = ((event.zones[zone].document.name, event.seat_at[ordinal]) for zone, ordinal in seats)
    return tuple(HeldSeat(seat.seat_id, block, seat.row, str(seat.number)) for block, seat in found)


def held_quantities(event: CompiledEvent, quantities: Iterable[Pair]) -> tuple[HeldQuantity, ...]:
    """Quantities by zone, described."""
    found = ((event.zones[zone].document, quantity) for zone, quantity in quantities)
    return tuple(HeldQuantity(zone.zone_id, zone.name, quantity) for zone, quantity in found)
