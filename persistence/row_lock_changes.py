"""Deciding what becomes of holds on an event's rows: the rules of the scripts that extend, release, sell and expire."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.backend import ExpireReply, HoldsReply, Position
from holdfast.engine.layout import EventState
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.persistence.operations import read_caller
from holdfast.persistence.row_lock_view import (
    ACTIVE,
    AVAILABLE,
    CANCELLED,
    CONVERTED,
    EXPIRED,
    Asks,
    Held,
    View,
    units_by_zone,
)

MAX_HOLDS = 50
MAX_EXPIRED = 200
MAX_META_BYTES = 4096
MAX_NAME_BYTES = 64
MAX_MS = 86_400_000
REASONS = frozenset({"user_cancelled", "payment_failed", "admin_override", "not_persisted"})

# Where several holds are refused for different reasons, the first of these is the answer.
_EXTENSION_REFUSALS = (
    Status.HOLD_NOT_FOUND,
    Status.NOT_HOLD_OWNER,
    Status.HOLD_SOLD,
    Status.HOLD_RELEASED,
    Status.HOLD_EXPIRED,
    Status.HOLD_IN_CHECKOUT,
)
_RELEASE_ORDER = (
    Status.DONE,
    Status.HOLD_NOT_FOUND,
    Status.HOLD_SOLD,
    Status.HOLD_RELEASED,
    Status.HOLD_IN_CHECKOUT,
    Status.HOLD_EXPIRED,
)
_SALE_REFUSALS = (
    Status.HOLD_NOT_FOUND,
    Status.NOT_HOLD_OWNER,
    Status.HOLD_RELEASED,
    Status.HOLD_SOLD,
    Status.HOLD_IN_CHECKOUT,
)


class Extension(msgspec.Struct, frozen=True):
    """A request for more time."""

    hold_ids: tuple[UUID, ...]
    user_id: UUID
    key: str
    extension_ms: int
    total_ms: int
    checkout: str
    meta: bytes


class Release(msgspec.Struct, frozen=True):
    """A request to give holds back; without a user it is an administrator's, with a checkout it is the end of that."""

    hold_ids: tuple[UUID, ...]
    user_id: UUID | None
    reason: str
    checkout: str
    meta: bytes


class Sale(msgspec.Struct, frozen=True):
    """A payment that succeeded."""

    hold_ids: tuple[UUID, ...]
    user_id: UUID | None
    sale: str
    meta: bytes


def asks(change: Extension | Release | Sale) -> Asks:
    return Asks(hold_ids=change.hold_ids[: MAX_HOLDS + 1])


def refused(status: Status, now_ms: int, position: Position) -> HoldsReply:
    return HoldsReply(status, now_ms, position, ())


async def extend_holds(view: View, wish: Extension) -> HoldsReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """Give holds more time, all or none, to their owner only."""
    caller = _enter(view, wish.hold_ids, wish.meta)
    if isinstance(caller, HoldsReply):
        return caller
    within = all(1 <= number <= MAX_MS for number in (wish.extension_ms, wish.total_ms))
    if not within or not _is_name(wish.key) or not (wish.checkout == "" or _is_name(wish.checkout)):
        return _refuse(view, Status.INVALID_REQUEST)
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    found = [view.holds.get(hold_id) for hold_id in wish.hold_ids]
    outcomes = tuple(_extendable(view, hold, wish) for hold in found)
    if refusal := _first(outcomes, _EXTENSION_REFUSALS):
        return _refuse(view, refusal, outcomes)
    holds = [hold for hold in found if hold]
    ends = tuple(_extended(hold, wish) for hold in holds)
    if all(hold.extension == wish.key for hold in holds):
        return HoldsReply(Status.REPEATED, view.now_ms, view.position_of(*holds), outcomes, ends_ms=ends)
    if not wish.checkout and all(end == hold.ends_ms for hold, end in zip(holds, ends, strict=True)):
        return HoldsReply(Status.EXTENSION_LIMIT, view.now_ms, view.position(0), outcomes, ends_ms=ends)
    await view.lock_holds(holds)
    view.extend(holds, ends, key=wish.key, checkout=wish.checkout, caller=caller)
    return HoldsReply(Status.DONE, view.now_ms, view.position(view.seq), outcomes, ends_ms=ends)


async def release_holds(view: View, wish: Release) -> HoldsReply:
    """Give seats back. A hold that cannot be released does not keep the others from it; another user's hold does."""
    caller = _enter(view, wish.hold_ids, wish.meta)
    if isinstance(caller, HoldsReply):
        return caller
    if wish.reason not in REASONS or not (wish.checkout == "" or _is_name(wish.checkout)):
        return _refuse(view, Status.INVALID_REQUEST)
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    found = [view.holds.get(hold_id) for hold_id in wish.hold_ids]
    if wish.user_id and any(hold and hold.user_id != wish.user_id for hold in found):
        return _refuse(view, Status.NOT_HOLD_OWNER)
    outcomes = tuple(_releasable(view, hold, wish) for hold in found)
    judged = [(hold, outcome) for hold, outcome in zip(found, outcomes, strict=True) if hold]
    lapsed = [hold for hold, outcome in judged if hold.status == ACTIVE and outcome is Status.HOLD_EXPIRED]
    released = [hold for hold, outcome in judged if hold.status == ACTIVE and outcome is Status.DONE]
    given_up = [hold for hold, outcome in judged if hold.status == EXPIRED and outcome is Status.DONE]
    unknown = [hold_id for hold_id, hold in zip(wish.hold_ids, found, strict=True) if not hold and wish.checkout]
    ending = [hold for hold, _ in judged if hold in lapsed or hold in released]
    position = view.position_of(*(hold for hold, _ in judged))
    if ending or given_up or unknown:
        await view.lock_holds(ending)
        view.expire(lapsed, caller)
        view.end(given_up, "release", wish.reason, caller, checkout=wish.checkout, unknown=unknown)
        view.end(released, "release", wish.reason, caller, checkout=wish.checkout)
        position = view.position(view.seq)
    return HoldsReply(
        min(outcomes, key=_RELEASE_ORDER.index),
        view.now_ms,
        position,
        outcomes,
        seats=tuple(seat for hold in ending for seat in hold.seats),
        quantities=tuple(pair for hold in ending for pair in hold.quantities),
    )


async def confirm_holds(view: View, wish: Sale) -> HoldsReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """Sell what holds have, all or nothing; a hold that expired only if all of it can be had again."""
    caller = _enter(view, wish.hold_ids, wish.meta)
    if isinstance(caller, HoldsReply):
        return caller
    if not _is_name(wish.sale):
        return _refuse(view, Status.INVALID_REQUEST)
    if view.version is None:
        return _refuse(view, Status.EVENT_NOT_FOUND)
    if view.state == EventState.CANCELLED:
        return _refuse(view, Status.EVENT_UNAVAILABLE)
    found = [view.holds.get(hold_id) for hold_id in wish.hold_ids]
    outcomes = [_sellable(hold, wish) for hold in found]
    named = [hold for hold in found if hold]
    selling = [hold for hold, outcome in zip(found, outcomes, strict=True) if hold and outcome == Status.DONE]
    lost, due = _find_lost_seats(view, selling, named)
    for at, hold in enumerate(found):
        if hold and lost.get(hold.hold_id):
            outcomes[at] = Status.SEATS_LOST
    if refusal := _first(outcomes, _SALE_REFUSALS):
        return _refuse(view, refusal, tuple(outcomes))

    again = [hold for hold in selling if hold.status == EXPIRED]
    wanted: Counter[int] = Counter()
    for hold in again:
        wanted += units_by_zone(hold.seats, hold.quantities)
    if view.lacking(wanted, due):
        due += [hold for hold in view.overdue if hold not in due and hold not in named]
    lacking = view.lacking(wanted, due)
    if lacking or any(lost.values()):
        seats = tuple(seat for hold in again for seat in lost[hold.hold_id])
        nowhere = view.position(0)
        return HoldsReply(Status.SEATS_LOST, view.now_ms, nowhere, tuple(outcomes), seats=seats, quantities=lacking)
    if not selling:
        return HoldsReply(Status.REPEATED, view.now_ms, view.position_of(*named), tuple(outcomes))
    await view.lock_holds([*selling, *due])
    view.expire(due, caller)
    view.sell(selling, wish.sale, caller)
    return HoldsReply(
        Status.DONE,
        view.now_ms,
        view.position(view.seq),
        tuple(outcomes),
        seats=tuple(seat for hold in selling for seat in hold.seats),
        quantities=tuple(pair for hold in selling for pair in hold.quantities),
    )


async def expire_holds(view: View, limit: int) -> ExpireReply:
    """Expire holds past their time, oldest first. Rows stay for good, so nothing is ever forgotten here."""
    if not view.served:
        return ExpireReply(Status.FENCED, view.now_ms, view.position(0), 0, 0)
    if not 1 <= limit <= MAX_EXPIRED:
        return ExpireReply(Status.INVALID_REQUEST, view.now_ms, view.position(0), 0, 0)
    if view.version is None:
        return ExpireReply(Status.EVENT_NOT_FOUND, view.now_ms, view.position(0), 0, 0)
    if not view.overdue:
        return ExpireReply(Status.DONE, view.now_ms, view.position(0), 0, 0)
    due = await view.lockable(view.overdue[:limit])
    view.expire(due, Actor())
    return ExpireReply(Status.DONE, view.now_ms, view.position(view.seq if due else 0), len(due), 0)


def _enter(view: View, hold_ids: Sequence[UUID], meta: bytes) -> Actor | HoldsReply:
    """Who asks, or the refusal of what cannot be served or is not well formed."""
    if not view.served:
        return _refuse(view, Status.FENCED)
    if not 1 <= len(hold_ids) <= MAX_HOLDS or len(set(hold_ids)) < len(hold_ids) or len(meta) > MAX_META_BYTES:
        return _refuse(view, Status.INVALID_REQUEST)
    try:
        return read_caller(meta)
    except msgspec.DecodeError:
        return _refuse(view, Status.INVALID_REQUEST)


def _is_name(text: str) -> bool:
    """Whether something can name a sale, a checkout or a request."""
    return 1 <= len(text.encode()) <= MAX_NAME_BYTES and "\n" not in text


def _extendable(view: View, hold: Held | None, wish: Extension) -> Status:
    if hold is None:
        return Status.HOLD_NOT_FOUND
    if hold.user_id != wish.user_id:
        return Status.NOT_HOLD_OWNER
    if ended := _ended(view, hold):
        return ended
    return Status.HOLD_IN_CHECKOUT if hold.checkout not in ("", wish.checkout) else Status.DONE


def _releasable(view: View, hold: Held | None, wish: Release) -> Status:
    if hold is None:
        # What Redis has forgotten ends with its checkout all the same; here nothing is, and the answers are the same.
        return Status.DONE if wish.checkout else Status.HOLD_NOT_FOUND
    ended = _ended(view, hold)
    if ended and ended is not Status.HOLD_EXPIRED:
        return ended
    if wish.checkout:
        # The end of a checkout releases what of it has expired, too: no late payment shall sell that.
        return Status.DONE if hold.checkout == wish.checkout else Status.HOLD_IN_CHECKOUT
    if ended:
        return ended
    return Status.HOLD_IN_CHECKOUT if hold.checkout and wish.reason != "not_persisted" else Status.DONE


def _ended(view: View, hold: Held) -> Status | None:
    """How a hold has ended, if it has; one past its time has expired."""
    endings = {CONVERTED: Status.HOLD_SOLD, CANCELLED: Status.HOLD_RELEASED, EXPIRED: Status.HOLD_EXPIRED}
    return endings.get(hold.status) or (Status.HOLD_EXPIRED if hold.is_overdue(view.now_ms) else None)


def _sellable(hold: Held | None, wish: Sale) -> Status:
    if hold is None:
        return Status.HOLD_NOT_FOUND
    if wish.user_id and hold.user_id != wish.user_id:
        return Status.NOT_HOLD_OWNER
    if hold.status == CANCELLED:
        return Status.HOLD_RELEASED
    if hold.status == CONVERTED:
        return Status.REPEATED if hold.checkout == wish.sale else Status.HOLD_SOLD
    return Status.HOLD_IN_CHECKOUT if hold.checkout not in ("", wish.sale) else Status.DONE


def _extended(hold: Held, wish: Extension) -> int:
    """When a hold ends after an extension: never later than its total allows, never earlier than before."""
    if hold.extension == wish.key or (wish.checkout and hold.checkout):
        return hold.ends_ms
    return max(hold.ends_ms, min(hold.ends_ms + wish.extension_ms, hold.created_ms + wish.total_ms))


def _find_lost_seats(
    view: View, selling: Sequence[Held], named: Sequence[Held]
) -> tuple[dict[UUID, list[Pair]], list[Held]]:
    """The seats that expired holds cannot have back, by hold, and the overdue holds of others that make way for them.

    A seat is lost to whoever has it, and to an earlier hold of the same sale that wants it back too.
    """
    lost: dict[UUID, list[Pair]] = {}
    due: dict[UUID, Held] = {}
    promised: set[int] = set()
    for hold in selling:
        if hold.status != EXPIRED:
            continue
        lost[hold.hold_id] = []
        for seat in hold.seats:
            owner = view.owner(seat.value)
            makes_way = owner is not None and owner.is_overdue(view.now_ms) and owner not in named
            is_free = view.seats[seat.value].status == AVAILABLE and not view.is_foreign(seat.value)
            is_kept = view.kept_from(seat.value, hold.user_id, hold.ordinals, view.companion_percent)
            if seat.value in promised or is_kept or not (is_free or makes_way):
                lost[hold.hold_id].append(seat)
            elif owner:
                due[owner.hold_id] = owner
            promised.add(seat.value)
    return lost, list(due.values())


def _first(outcomes: Sequence[Status], order: Sequence[Status]) -> Status | None:
    """The refusal of an operation that is all or nothing."""
    return next((status for status in order if status in outcomes), None)


def _refuse(view: View, status: Status, outcomes: tuple[Status, ...] = ()) -> HoldsReply:
    return HoldsReply(status, view.now_ms, view.position(0), outcomes)
