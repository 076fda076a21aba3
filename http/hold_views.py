"""Holds and what they consist of, as replies show them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.engine.backend import StoredHold
from holdfast.engine.layout import SEPARATOR, CompiledEvent, SeatCategory
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
    """A hold, as its owner sees it.

    `companion_seat_ids` are the companion seats of its wheelchair seats that are not in it. While they are free, and
    the zone is not almost full, they are kept for the owner, who may hold or decline them.
    """

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
    counter_offer: bool | None = None
    companion_seat_ids: tuple[str, ...] = ()
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
        companion_seat_ids=companion_seat_ids(event, record.seats) if is_live or status == "converted" else (),
    )


def held_seats(event: CompiledEvent, seats: Iterable[Pair]) -> tuple[HeldSeat, ...]:
    """Seats by zone and ordinal, described."""
    found = ((event.zones[zone].document.name, event.seat_at[ordinal]) for zone, ordinal in seats)
    return tuple(HeldSeat(seat.seat_id, block, seat.row, str(seat.number)) for block, seat in found)


def companion_seat_ids(event: CompiledEvent, seats: Sequence[Pair]) -> tuple[str, ...]:
    """The companion seats of wheelchair seats among some seats, without those that are among them."""
    if not event.paired:
        return ()
    wheelchairs = (seat.value for seat in seats if event.seat_at[seat.value].category is SeatCategory.WHEELCHAIR)
    companions = dict.fromkeys(each for ordinal in wheelchairs for each in event.paired[ordinal])
    return tuple(event.seat_at[each.value].seat_id for each in companions if each not in seats)


def describe_split(event: CompiledEvent, seats: Sequence[Pair]) -> str:
    """How a group that does not sit together is split, for a sentence; empty for one that does."""
    clusters: list[list[int]] = []
    for _, ordinal in seats:
        if clusters and clusters[-1][-1] == ordinal - 1:
            clusters[-1].append(ordinal)
        else:
            clusters.append([ordinal])
    if len(clusters) < 2:
        return ""
    return ", ".join(_describe_cluster(event, cluster, clusters[0][0]) for cluster in clusters)


def _describe_cluster(event: CompiledEvent, cluster: Sequence[int], front: int) -> str:
    """As in "2 seats together in row B"; with how far behind the front, if that is not the next row."""
    rows_back = event.map.count(SEPARATOR, front, cluster[0])
    many = "1 seat" if len(cluster) == 1 else f"{len(cluster)} seats together"
    where = f"{many} in row {event.seat_at[cluster[0]].row}"
    return f"{where} ({rows_back} rows back)" if rows_back > 1 else where


def held_quantities(event: CompiledEvent, quantities: Iterable[Pair]) -> tuple[HeldQuantity, ...]:
    """Quantities by zone, described."""
    found = ((event.zones[zone].document, quantity) for zone, quantity in quantities)
    return tuple(HeldQuantity(zone.zone_id, zone.name, quantity) for zone, quantity in found)
