"""Checkouts: a buyer's live holds of one event, taken together, sold together or given back together.

The scripts decide. From the start to the end of a checkout its holds answer to it alone; the first of sale, failure and
cancellation to reach them wins. What became of a checkout is read from Postgres after the decision is committed there,
so everybody who asks is told the same.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.engine import telemetry
from holdfast.engine.backend import EventIds, HoldsReply, StoredHold
from holdfast.engine.errors import Overloaded
from holdfast.engine.layout import CompiledEvent, EventState
from holdfast.engine.records import Pair
from holdfast.engine.service import HoldService
from holdfast.engine.status import Status

MAX_HOLDS = 50

# How often a start looks again when its holds change under it.
_ATTEMPTS = 5

_LIVE = "h"
_EXPIRED = "x"
_SOLD = "s"


class CheckoutStatus(StrEnum):
    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Payment(StrEnum):
    """How a payment ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class CheckoutLine(msgspec.Struct, frozen=True):
    """A seat, or places of a zone, that a checkout took. `status` is that of the hold's row."""

    hold_id: UUID
    zone: int
    ordinal: int | None
    quantity: int
    status: str
    held_until: datetime
    ended_at: datetime | None


class Ticket(msgspec.Struct, frozen=True):
    """What was sold: a seat, or a place of a zone."""

    ticket_id: UUID
    hold_id: UUID
    zone: int
    ordinal: int | None


class CheckoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A checkout as it is in Postgres."""

    checkout_id: UUID
    organization_id: UUID
    event_id: UUID
    user_id: UUID
    status: CheckoutStatus
    created_at: datetime
    updated_at: datetime
    lines: tuple[CheckoutLine, ...]
    tickets: tuple[Ticket, ...]

    @property
    def hold_ids(self) -> tuple[UUID, ...]:
        return tuple(dict.fromkeys(line.hold_id for line in self.lines))


class CheckoutRecords(Protocol):
    """Where checkouts are read from."""

    async def find(self, organization_id: UUID, checkout_id: UUID) -> CheckoutRecord | None: ...


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a buyer wants to check out: named holds, or else all of a cart.

    `checkout_id` is the id of the checkout that comes of it; a repeat has the same.
    """

    checkout_id: UUID
    user_id: UUID
    cart: str = ""
    hold_ids: tuple[UUID, ...] = ()


class StartReply(msgspec.Struct, frozen=True):
    """DONE and REPEATED come with the checkout; a refusal names the holds it is about."""

    status: Status
    checkout: CheckoutRecord | None = None
    holds: tuple[StoredHold, ...] = ()
    missing: tuple[UUID, ...] = ()


class EndReply(msgspec.Struct, frozen=True):
    """What came of an attempt to end a checkout, and the checkout as it is now.

    DONE, or REPEATED if it had ended so before. HOLD_SOLD and HOLD_RELEASED say that it has ended in another way, as
    its status tells. HOLD_EXPIRED says that its holds are long gone and nothing is left to release. SEATS_LOST names
    what a late payment cannot have: then nothing was sold.
    """

    status: Status
    checkout: CheckoutRecord
    lost_seats: tuple[Pair, ...] = ()
    lost_quantities: tuple[Pair, ...] = ()


class Checkouts:
    """The operations on checkouts. Each may be repeated, also at the same time; each may raise a BackendError."""

    def __init__(self, holds: HoldService, records: CheckoutRecords) -> None:
        self._holds = holds
        self._records = records

    async def find(self, organization_id: UUID, checkout_id: UUID) -> CheckoutRecord | None:
        """A checkout of the organisation."""
        return await self._records.find(organization_id, checkout_id)

    async def start(self, event: CompiledEvent, wish: Wish, meta: bytes) -> StartReply:
        """Take the holds and give them more time; a buyer whose holds are in a checkout already is given that one."""
        if event.document.state is EventState.CANCELLED:
            # Only told early: the sale is where it is decided.
            return StartReply(Status.EVENT_UNAVAILABLE)
        for _ in range(_ATTEMPTS):
            reply = await self._try_to_start(event, wish, meta)
            if reply is not None:
                return reply
        raise Overloaded("the holds change too fast to be taken together")

    async def complete(self, checkout: CheckoutRecord, payment: Payment, meta: bytes) -> EndReply:
        """Sell everything, or give everything back, as the payment ended."""
        if payment is Payment.SUCCEEDED:
            return await self._end(checkout, CheckoutStatus.COMPLETED, lambda: self._sell(checkout, meta))
        return await self._end(
            checkout, CheckoutStatus.FAILED, lambda: self._release(checkout, "payment_failed", None, meta)
        )

    async def cancel(self, checkout: CheckoutRecord, meta: bytes) -> EndReply:
        """Give everything back because the buyer wants no more."""
        return await self._end(
            checkout,
            CheckoutStatus.CANCELLED,
            lambda: self._release(checkout, "user_cancelled", checkout.user_id, meta),
        )

    async def _try_to_start(self, event: CompiledEvent, wish: Wish, meta: bytes) -> StartReply | None:
        """Nothing if the holds changed between looking and taking."""
        reading = await self._holds.read_holds(
            event.organization_id, event.event_id, user_id=wish.user_id, hold_ids=wish.hold_ids
        )
        if not reading.status.succeeded:
            return StartReply(reading.status)
        wanted = [hold for hold in reading.holds if wish.hold_ids or hold.record.cart == wish.cart]
        name = str(wish.checkout_id)
        if any(hold.record.checkout == name for hold in wanted):
            await self._holds.committed(reading.position)
            return await self._started(event, wish.checkout_id, Status.REPEATED)
        missing = tuple(set(wish.hold_ids) - {hold.hold_id for hold in wanted})
        live = [hold for hold in wanted if hold.record.state == _LIVE and hold.ends_ms > reading.now_ms]
        free = [hold for hold in live if not hold.record.checkout]
        if refusal := _refusal(wish, wanted, live, free, missing):
            if refusal.status is Status.HOLD_EXPIRED:
                telemetry.expired_before_checkout.value += len(refusal.holds)
            return refusal
        if not free:
            latest = max(live, key=lambda hold: hold.record.seq)
            await self._holds.committed(reading.position)
            return await self._started(event, UUID(latest.record.checkout), Status.REPEATED)
        taken = await self._take(event, [hold.hold_id for hold in free], wish, meta)
        if taken.status.succeeded:
            return await self._started(event, wish.checkout_id, taken.status)
        return None if taken.status in _CHANGED else StartReply(taken.status)

    async def _take(self, event: CompiledEvent, hold_ids: Iterable[UUID], wish: Wish, meta: bytes) -> HoldsReply:
        policy = event.document.policy
        return await self._holds.extend_holds(
            event,
            hold_ids,
            user_id=wish.user_id,
            key=str(wish.checkout_id),
            extension_ms=policy.checkout_extension_minutes * 60_000,
            total_ms=policy.max_hold_total_minutes * 60_000,
            checkout=str(wish.checkout_id),
            meta=meta,
        )

    async def _started(self, event: CompiledEvent, checkout_id: UUID, status: Status) -> StartReply | None:
        """The checkout, unless Postgres refused it after all, in which case its holds are being given back."""
        found = await self._records.find(event.organization_id, checkout_id)
        return StartReply(status, found) if found else None

    async def _end(
        self,
        checkout: CheckoutRecord,
        wanted: CheckoutStatus,
        attempt: Callable[[], Awaitable[HoldsReply]],
    ) -> EndReply:
        if checkout.status is not CheckoutStatus.OPEN:
            return EndReply(_ended_as(checkout.status, wanted), checkout)
        reply = await attempt()
        if not reply.status.succeeded and reply.status in _CHANGED:
            # Somebody else has ended it, or its time has: what they decided is told once it is committed.
            reading = await self._holds.read_holds(
                checkout.organization_id, checkout.event_id, user_id=None, hold_ids=checkout.hold_ids
            )
            await self._holds.committed(reading.position)
        now = await self._records.find(checkout.organization_id, checkout.checkout_id) or checkout
        if now.status is not CheckoutStatus.OPEN:
            return EndReply(Status.DONE if reply.status is Status.DONE else _ended_as(now.status, wanted), now)
        if wanted is not CheckoutStatus.COMPLETED:
            return EndReply(Status.HOLD_EXPIRED if reply.status in _CHANGED else reply.status, now)
        if reply.status not in (*_CHANGED, Status.SEATS_LOST):
            return EndReply(reply.status, now)
        seats, quantities = _lost(now, reply)
        return EndReply(Status.SEATS_LOST, now, seats, quantities)

    async def _sell(self, checkout: CheckoutRecord, meta: bytes) -> HoldsReply:
        event = EventIds(checkout.organization_id, checkout.event_id)
        sale = str(checkout.checkout_id)
        return await self._holds.confirm_holds(event, checkout.hold_ids, sale=sale, user_id=None, meta=meta)

    async def _release(self, checkout: CheckoutRecord, reason: str, user_id: UUID | None, meta: bytes) -> HoldsReply:
        event = EventIds(checkout.organization_id, checkout.event_id)
        name = str(checkout.checkout_id)
        return await self._holds.release_holds(
            event, checkout.hold_ids, user_id=user_id, reason=reason, checkout=name, meta=meta
        )


# What a script says of holds that somebody else has changed since they were looked at.
_CHANGED = frozenset(
    {
        Status.HOLD_NOT_FOUND,
        Status.HOLD_SOLD,
        Status.HOLD_RELEASED,
        Status.HOLD_EXPIRED,
        Status.HOLD_IN_CHECKOUT,
    }
)


def _refusal(  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    wish: Wish,
    wanted: list[StoredHold],
    live: list[StoredHold],
    free: list[StoredHold],
    missing: tuple[UUID, ...],
) -> StartReply | None:
    """Why these holds cannot be checked out together, if they cannot."""
    if missing:
        return StartReply(Status.HOLD_NOT_FOUND, missing=missing)
    gone = [hold for hold in wanted if hold not in live]
    ended = tuple(hold for hold in gone if hold.record.state not in (_LIVE, _EXPIRED))
    if wish.hold_ids and ended:
        sold = any(hold.record.state == _SOLD for hold in ended)
        return StartReply(Status.HOLD_SOLD if sold else Status.HOLD_RELEASED, holds=ended)
    missed = tuple(hold for hold in gone if hold not in ended and (wish.hold_ids or _is_missed(hold, live)))
    if missed and (free or not live):
        return StartReply(Status.HOLD_EXPIRED, holds=missed)
    if not live:
        return StartReply(Status.HOLD_NOT_FOUND)
    if len(free) > MAX_HOLDS:
        return StartReply(Status.TOO_MANY_SEATS)
    if wish.hold_ids and free and len(free) < len(live):
        return StartReply(Status.HOLD_IN_CHECKOUT, holds=tuple(hold for hold in live if hold not in free))
    return None


def _is_missed(lapsed: StoredHold, live: list[StoredHold]) -> bool:
    """Whether a buyer still counts on an expired hold: it was in no checkout, and not reserved again since."""
    held = {seat for hold in live for seat in hold.record.seats}
    again = bool(lapsed.record.seats) and held.issuperset(lapsed.record.seats)
    return not lapsed.record.checkout and not again


def _ended_as(status: CheckoutStatus, wanted: CheckoutStatus) -> Status:
    if status is wanted:
        return Status.REPEATED
    return Status.HOLD_SOLD if status is CheckoutStatus.COMPLETED else Status.HOLD_RELEASED


def _lost(checkout: CheckoutRecord, reply: HoldsReply) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """What a late payment cannot have: what the script named, else all of the holds that are gone."""
    if reply.seats or reply.quantities:
        return reply.seats, reply.quantities
    outcomes = dict(zip(checkout.hold_ids, reply.outcomes, strict=False))
    gone = [line for line in checkout.lines if outcomes.get(line.hold_id, Status.HOLD_NOT_FOUND) is not Status.DONE]
    seats = tuple(Pair(line.zone, line.ordinal) for line in gone if line.ordinal is not None)
    return seats, tuple(Pair(line.zone, line.quantity) for line in gone if line.ordinal is None)
