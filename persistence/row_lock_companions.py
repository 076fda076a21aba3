"""Wheelchair seats and their companions on an event's rows: the rules of the scripts that know of them."""

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.backend import AdminReply
from holdfast.engine.layout import CompiledEvent, SeatCategory
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.persistence.operations import read_caller
from holdfast.persistence.row_lock_view import AVAILABLE, CANCELLED, EXPIRED, Asks, Held, View

MAX_META_BYTES = 4096


class Declination(msgspec.Struct, frozen=True):
    """A buyer of wheelchair seats who does not want their companion seats."""

    hold_id: UUID
    user_id: UUID
    meta: bytes

    def asks(self) -> Asks:
        return Asks(hold_ids=(self.hold_id,), overdue=0)


def wheelchairs_among(event: CompiledEvent, seats: Sequence[Pair]) -> tuple[Pair, ...]:
    """The wheelchair seats of some seats."""
    if not event.paired:
        return ()
    return tuple(seat for seat in seats if event.seat_at[seat.value].category is SeatCategory.WHEELCHAIR)


def too_many_wheelchairs(view: View, event: CompiledEvent, user_id: UUID, seats: Sequence[Pair]) -> tuple[Pair, ...]:
    """The wheelchair seats asked for, if the user would hold more of them than one booking may have."""
    limit, asked = event.document.policy.wheelchair_limit, wheelchairs_among(event, seats)
    if not limit or not asked:
        return ()
    live = (hold for hold in view.holds_of(user_id) if hold.is_live(view.now_ms))
    have = sum(len(wheelchairs_among(event, hold.seats)) for hold in live)
    return asked if have + len(asked) > limit else ()


async def choose_accessible(
    view: View, event: CompiledEvent, zones: Sequence[int], count: int
) -> tuple[tuple[Pair, ...], list[Held]]:
    """A wheelchair seat with so many seats in all, and the overdue holds that have to go for them."""
    with_room = [zone for zone in zones if view.zones[zone].free >= count]
    if seats := await _find_wheelchair_seat(view, event, with_room, count, set()):
        return seats, []
    due = await view.lockable(view.overdue)
    if not due and len(with_room) == len(zones):
        return (), []
    freed = {ordinal for hold in due for ordinal in hold.ordinals}
    seats = await _find_wheelchair_seat(view, event, zones, count, freed)
    return seats, due if seats else []


async def _find_wheelchair_seat(
    view: View, event: CompiledEvent, zones: Sequence[int], count: int, freed: Collection[int]
) -> tuple[Pair, ...]:
    """The first free wheelchair seat with enough free companions, all locked now, as if others were free too."""

    def is_free(ordinal: int) -> bool:
        return ordinal in freed or view.seats[ordinal].status == AVAILABLE

    for zone in (event.zones[index] for index in zones):
        for ordinal, companions in event.paired.items():
            is_wheelchair = event.seat_at[ordinal].category is SeatCategory.WHEELCHAIR
            if not is_wheelchair or not zone.first <= ordinal <= zone.last or not is_free(ordinal):
                continue
            found = (Pair(zone.index, ordinal), *(each for each in companions if is_free(each.value)))[:count]
            if len(found) == count and await view.lock(seat.value for seat in found):
                return tuple(sorted(found))
    return ()


def book(view: View, event: CompiledEvent, hold: Held, caller: Actor) -> None:
    """Tell the audit of a hold that has wheelchair seats, if it wants to know."""
    policy, wheelchairs = event.document.policy, wheelchairs_among(event, hold.seats)
    if not wheelchairs or not policy.accessibility_audit_enabled:
        return
    companions = dict.fromkeys(each for seat in wheelchairs for each in event.paired[seat.value])
    kept = tuple(
        each
        for each in companions
        if view.seats[each.value].status == AVAILABLE and view.kept_from(each.value, None, (), policy.companion_percent)
    )
    view.book(hold, wheelchairs, kept, caller)


async def decline_companions(view: View, wish: Declination) -> AdminReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """Let go of the companion seats that are kept for the buyer of wheelchair seats."""
    if not view.served:
        return _refuse(view, Status.FENCED)
    try:
        caller = read_caller(wish.meta)
    except msgspec.DecodeError:
        return _refuse(view, Status.INVALID_REQUEST)
    if len(wish.meta) > MAX_META_BYTES:
        return _refuse(view, Status.INVALID_REQUEST)
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    hold = view.holds.get(wish.hold_id)
    if hold is None:
        return _refuse(view, Status.HOLD_NOT_FOUND)
    if hold.user_id != wish.user_id:
        return _refuse(view, Status.NOT_HOLD_OWNER)
    if hold.status == CANCELLED:
        return _refuse(view, Status.HOLD_RELEASED)
    if hold.status == EXPIRED or hold.is_overdue(view.now_ms):
        return _refuse(view, Status.HOLD_EXPIRED)
    wheelchairs = tuple(seat for seat in hold.seats if view.seats[seat.value].is_wheelchair)
    if not wheelchairs:
        return _refuse(view, Status.SEAT_NOT_FOUND)
    if hold.declined:
        return AdminReply(Status.REPEATED, view.now_ms, view.position_of(hold), wheelchairs)
    await view.lock_holds([hold])
    view.decline(hold, wheelchairs, caller)
    return AdminReply(Status.DONE, view.now_ms, view.position(view.seq), wheelchairs)


def _refuse(view: View, status: Status) -> AdminReply:
    return AdminReply(status, view.now_ms, view.position(0))
