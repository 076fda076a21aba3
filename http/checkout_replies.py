"""Checkouts as clients are told of them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.checkouts import CheckoutLine, CheckoutRecord, CheckoutStatus
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A seat, or places of a zone without seats, which have neither seat, row nor number."""

    zone_id: str
    block_name: str
    seat_id: str | None
    row: str | None
    seat_number: str | None


class CheckoutPlace(Place, frozen=True, kw_only=True):
    """What is being bought. `status` is that of its hold: active, converted, expired or cancelled."""

    hold_id: UUID
    quantity: int
    status: str
    held_until: datetime


class SoldTicket(Place, frozen=True, kw_only=True):
    """A ticket: there is one for each seat or place."""

    ticket_id: UUID
    hold_id: UUID


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """A checkout. `status` is open, completed, failed or cancelled; or expired, when its time is over and it has not
    ended: a payment that succeeds then still buys it, if all its seats are free."""

    checkout_id: UUID
    event_id: UUID
    status: str
    held_until: datetime | None
    held_until_unix: int | None
    expires_in_seconds: int
    seats: tuple[CheckoutPlace, ...]
    tickets: tuple[SoldTicket, ...]
    message: str


class ReleasedSeat(msgspec.Struct, frozen=True):
    """A seat that is free again; for places of a zone without seats only `block` and how many."""

    seat_id: str | None
    block: str
    row: str | None
    number: str | None
    quantity: int


class CancelledCheckout(msgspec.Struct, frozen=True):
    """What a cancellation has set free."""

    status: str
    checkout_id: UUID
    released_seats: tuple[ReleasedSeat, ...]
    released_count: int
    message: str


def describe_checkout(event: CompiledEvent, checkout: CheckoutRecord) -> Checkout:
    """A checkout as a client is told of it."""
    now = datetime.now(UTC)
    active = [line for line in checkout.lines if line.status == "active" and line.held_until > now]
    status = checkout.status.value if active or checkout.status is not CheckoutStatus.OPEN else "expired"
    ends = min((line.held_until for line in active), default=None)
    return Checkout(
        checkout_id=checkout.checkout_id,
        event_id=checkout.event_id,
        status=status,
        held_until=ends,
        held_until_unix=int(ends.timestamp()) if ends else None,
        expires_in_seconds=int((ends - now).total_seconds()) if ends else 0,
        seats=tuple(
            CheckoutPlace(
                **_place(event, line.zone, line.ordinal),
                hold_id=line.hold_id,
                quantity=line.quantity,
                status=line.status,
                held_until=line.held_until,
            )
            for line in checkout.lines
        ),
        tickets=tuple(
            SoldTicket(**_place(event, ticket.zone, ticket.ordinal), ticket_id=ticket.ticket_id, hold_id=ticket.hold_id)
            for ticket in checkout.tickets
        ),
        message=_MESSAGES[status],
    )


_MESSAGES = {
    "open": "Pay before the time is over.",
    "expired": "The time is over. A payment that succeeds now buys the seats only if they are all free.",
    "completed": "The seats are yours.",
    "failed": "The payment failed. The seats are available for other customers.",
    "cancelled": "The order was cancelled. The seats are available for other customers.",
}


def describe_cancellation(event: CompiledEvent, checkout: CheckoutRecord) -> CancelledCheckout:
    """What a client is told of a cancellation, the first time and every time."""
    released = [line for line in checkout.lines if _was_released(line)]
    return CancelledCheckout(
        status=CheckoutStatus.CANCELLED,
        checkout_id=checkout.checkout_id,
        released_seats=tuple(_released(event, line) for line in released),
        released_count=sum(line.quantity for line in released),
        message="Your order has been cancelled. Seats are now available for other customers."
        if released
        else "Your order has been cancelled. Its seats were free already, because their time was over.",
    )


def _was_released(line: CheckoutLine) -> bool:
    """Whether the end of the checkout set it free, and not its own time before."""
    return line.status == "cancelled" and line.ended_at is not None and line.ended_at < line.held_until


def _released(event: CompiledEvent, line: CheckoutLine) -> ReleasedSeat:
    place = _place(event, line.zone, line.ordinal)
    return ReleasedSeat(place["seat_id"], place["block_name"], place["row"], place["seat_number"], line.quantity)


def _place(event: CompiledEvent, zone: int, ordinal: int | None) -> dict[str, Any]:
    document = event.zones[zone].document
    seat = event.seat_at[ordinal] if ordinal is not None else None
    return {
        "zone_id": document.zone_id,
        "block_name": document.name,
        "seat_id": seat.seat_id if seat else None,
        "row": seat.row if seat else None,
        "seat_number": str(seat.number) if seat else None,
    }


def seat_ids(event: CompiledEvent, seats: Iterable[Pair]) -> tuple[str, ...]:
    """Seats by the names that clients know them by."""
    return tuple(event.seat_at[seat.value].seat_id for seat in seats if seat.value in event.seat_at)


def zone_ids(event: CompiledEvent, quantities: Iterable[Pair]) -> tuple[str, ...]:
    """Zones by the names that clients know them by."""
    return tuple(dict.fromkeys(event.zones[zone].document.zone_id for zone, _ in quantities if zone < len(event.zones)))
