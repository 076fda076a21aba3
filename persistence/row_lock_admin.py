"""Deciding the administration of an event on its rows: seats out of sale and back, events into service and out."""

from collections.abc import Sequence

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.backend import AdminReply, Position
from holdfast.engine.layout import MAX_ORDINALS, CompiledEvent, EventState
from holdfast.engine.records import Block, Pair
from holdfast.engine.status import Status
from holdfast.persistence.operations import read_caller
from holdfast.persistence.row_lock_view import AVAILABLE, BLOCKED, HELD, Asks, Held, View

MAX_SEATS = 1000
MAX_QUANTITIES = 100
MAX_META_BYTES = 4096


class SeatChange(msgspec.Struct, frozen=True):
    """Seats and general-admission places to block or to unblock."""

    event: CompiledEvent
    seats: tuple[Pair, ...]
    quantities: tuple[Pair, ...]
    meta: bytes

    def asks(self) -> Asks:
        return Asks(
            ordinals=tuple(seat.value for seat in self.seats[: MAX_SEATS + 1] if seat.value < MAX_ORDINALS),
            zones=tuple({pair.zone for pair in (*self.seats, *self.quantities)}),
        )


class EventChange(msgspec.Struct, frozen=True):
    """An event to open, to change into another, or to close."""

    event: CompiledEvent
    changed: CompiledEvent
    meta: bytes

    def asks(self) -> Asks:
        return Asks(zones=tuple(zone.index for zone in self.changed.zones))


def refused(status: Status, now_ms: int, position: Position) -> AdminReply:
    return AdminReply(status, now_ms, position)


async def block_seats(view: View, wish: SeatChange) -> AdminReply:
    """Take seats and places out of sale, all or none. A live hold keeps its seats."""
    caller = _enter(view, wish)
    if isinstance(caller, AdminReply):
        return caller
    if not _well_formed(wish) or any(pair.value == 0 for pair in wish.quantities):
        return _refuse(view, Status.INVALID_REQUEST)
    if refusal := _check_version(view, wish):
        return refusal
    reasons: dict[Status, tuple[list[Pair], list[Pair]]] = {}
    for seat in wish.seats:
        if reason := _unblockable_seat(view, seat):
            reasons.setdefault(reason, ([], []))[0].append(seat)
    for pair in wish.quantities:
        if reason := _unblockable_places(view, pair):
            reasons.setdefault(reason, ([], []))[1].append(pair)
    if reasons:
        return _refuse(view, min(reasons), *reasons[min(reasons)])
    changed = tuple(seat for seat in wish.seats if view.seats[seat.value].status != BLOCKED)
    if not changed and not wish.quantities:
        return AdminReply(Status.REPEATED, view.now_ms, view.position(view.seq))
    due = {hold.hold_id: hold for seat in changed if (hold := view.owner(seat.value))}
    await view.lock_holds(due.values())
    await view.lock_all(seat.value for seat in changed)
    view.expire(list(due.values()), caller)
    view.administer("block", caller, block=Block(changed, wish.quantities))
    return AdminReply(Status.DONE, view.now_ms, view.position(view.seq), changed, wish.quantities)


async def unblock_seats(view: View, wish: SeatChange) -> AdminReply:
    """Put blocked seats and places back on sale, all or none."""
    caller = _enter(view, wish)
    if isinstance(caller, AdminReply):
        return caller
    if not _well_formed(wish):
        return _refuse(view, Status.INVALID_REQUEST)
    if refusal := _check_version(view, wish):
        return refusal
    unknown = [seat for seat in wish.seats if _is_unknown_seat(view, seat)]
    unknown_places = [pair for pair in wish.quantities if _is_unknown_zone(view, pair)]
    if unknown or unknown_places:
        return _refuse(view, Status.SEAT_NOT_FOUND, unknown, unknown_places)
    changed = tuple(seat for seat in wish.seats if view.seats[seat.value].status == BLOCKED)
    fewer = (Pair(zone, min(many, view.zones[zone].blocked)) for zone, many in wish.quantities)
    returned = tuple(pair for pair in fewer if pair.value)
    if not changed and not returned:
        return AdminReply(Status.REPEATED, view.now_ms, view.position(view.seq))
    await view.lock_all(seat.value for seat in changed)
    view.administer("unblock", caller, block=Block(changed, returned))
    return AdminReply(Status.DONE, view.now_ms, view.position(view.seq), changed, returned)


async def open_event(view: View, wish: EventChange) -> AdminReply:
    """Put an event that is saved in Postgres into service; the rows of its seats are there already."""
    caller = _enter(view, wish)
    if isinstance(caller, AdminReply):
        return caller
    if view.version == wish.event.version:
        return AdminReply(Status.REPEATED, view.now_ms, view.position(view.seq))
    if view.version is not None:
        return _refuse(view, Status.EVENT_EXISTS)
    zones = [(zone.index, zone.document.capacity, len(zone.document.seats)) for zone in wish.event.zones]
    if not view.is_stored or zones != [zone[:3] for zone in view.zones.values()]:
        return _refuse(view, Status.LOAD_INCOMPLETE)
    view.administer("open", caller, config=_config(wish.event))
    return AdminReply(Status.DONE, view.now_ms, view.position(view.seq))


async def set_event_state(view: View, wish: EventChange) -> AdminReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """Change an event in service: its state, window, limits and capacities."""
    caller = _enter(view, wish)
    if isinstance(caller, AdminReply):
        return caller
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    if view.version == wish.changed.version:
        return AdminReply(Status.REPEATED, view.now_ms, view.position(view.seq))
    if view.version != wish.event.version:
        return _refuse(view, Status.STALE_CONFIG)
    before, after = ([zone.document.capacity for zone in event.zones] for event in (wish.event, wish.changed))
    capacities = tuple(Pair(i, new) for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    for zone, capacity in capacities:
        if zone not in view.zones:
            return _refuse(view, Status.SEAT_NOT_FOUND)
        if 0 < view.zones[zone].seats < capacity:
            return _refuse(view, Status.INVALID_REQUEST)
    view.administer("state", caller, config=_config(wish.changed), capacities=capacities)
    return AdminReply(Status.DONE, view.now_ms, view.position(view.seq))


async def close_event(view: View, wish: EventChange) -> AdminReply:
    """Take an event out of service. One that sells, or that has holds which have not ended, stays."""
    caller = _enter(view, wish)
    if isinstance(caller, AdminReply):
        return caller
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    in_use = any(zone.held for zone in view.zones.values())
    if in_use or view.state in (EventState.PUBLISHED, EventState.LIVE):
        return _refuse(view, Status.EVENT_IN_USE)
    view.administer("close", caller)
    return AdminReply(Status.DONE, view.now_ms, view.position(view.seq))


def _enter(view: View, wish: SeatChange | EventChange) -> Actor | AdminReply:
    """Who asks, or the refusal of what cannot be served or is not well formed."""
    if not view.served:
        return _refuse(view, Status.FENCED)
    if len(wish.meta) > MAX_META_BYTES:
        return _refuse(view, Status.INVALID_REQUEST)
    try:
        return read_caller(wish.meta)
    except msgspec.DecodeError:
        return _refuse(view, Status.INVALID_REQUEST)


def _well_formed(wish: SeatChange) -> bool:
    """Something is asked for, nothing twice, and not too much."""
    seats, zones = {seat.value for seat in wish.seats}, {pair.zone for pair in wish.quantities}
    distinct = len(seats) == len(wish.seats) and len(zones) == len(wish.quantities)
    return bool(seats or zones) and distinct and len(seats) <= MAX_SEATS and len(zones) <= MAX_QUANTITIES


def _check_version(view: View, wish: SeatChange) -> AdminReply | None:
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    return _refuse(view, Status.STALE_CONFIG) if view.version != wish.event.version else None


def _unblockable_seat(view: View, seat: Pair) -> Status | None:
    if _is_unknown_seat(view, seat):
        return Status.SEAT_NOT_FOUND
    if view.seats[seat.value].status not in (AVAILABLE, BLOCKED, HELD):
        return Status.SEAT_NOT_AVAILABLE
    owner: Held | None = view.owner(seat.value)
    return Status.SEAT_HELD_BY_ANOTHER_USER if owner and owner.is_live(view.now_ms) else None


def _unblockable_places(view: View, pair: Pair) -> Status | None:
    if _is_unknown_zone(view, pair):
        return Status.SEAT_NOT_FOUND
    return Status.BLOCK_AT_CAPACITY if pair.value > view.room(pair.zone) else None


def _is_unknown_seat(view: View, seat: Pair) -> bool:
    found = view.seats.get(seat.value)
    return found is None or found.zone != seat.zone


def _is_unknown_zone(view: View, pair: Pair) -> bool:
    zone = view.zones.get(pair.zone)
    return zone is None or zone.seats > 0


def _config(event: CompiledEvent) -> tuple[str, ...]:
    return event.version, event.document.state.value, str(event.opens_ms), str(event.closes_ms)


def _refuse(view: View, status: Status, seats: Sequence[Pair] = (), quantities: Sequence[Pair] = ()) -> AdminReply:
    return AdminReply(status, view.now_ms, view.position(0), tuple(seats), tuple(quantities))
