"""An event as the row locks see it: what calls to it want to know, and what they change.

A view is read in one statement. The first view of a call is read without a lock, and good for every answer that changes
nothing. Whoever wants to change something is given another view under the shard's lock, which nobody can make untrue
before the transaction ends. Calls decide on it one after the other; each change is an operation of the log, as
a script would have written it, and is in the view for the next call.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.backend import EventIds, Position, StoredHold
from holdfast.engine.records import Block, HoldRecord, LogEntry, Pair, ZoneCounts
from holdfast.persistence.operations import Accessible, Administer, Decline, End, Extend, Hold, Operation, Sell
from holdfast.persistence.row_lock_runs import FreeSeats

AVAILABLE, HELD, SOLD, BLOCKED = "available", "held", "sold", "blocked"
ACTIVE, CONVERTED, EXPIRED, CANCELLED = "active", "converted", "expired", "cancelled"

_STATES = {ACTIVE: "h", CONVERTED: "s", EXPIRED: "x", CANCELLED: "r"}
_SERVED_HERE = "db"


class MustLock(Exception):
    """The call would change something: it has to decide again under the shard's lock."""


class SeatsLocked(Exception):
    """Somebody else has locked seats that a call is about to change, and that it cannot do without."""


class Asks(msgspec.Struct, frozen=True):
    """What a call wants to know of its event. The seats and zones of the holds it names come by themselves."""

    hold_ids: tuple[UUID, ...] = ()
    ordinals: tuple[int, ...] = ()
    zones: tuple[int, ...] = ()
    user_ids: tuple[UUID, ...] = ()
    addresses: tuple[str, ...] = ()
    window_ms: int = 0
    overdue: int = 64


class Seat(msgspec.Struct, array_like=True, eq=False):
    """A seat's row."""

    ordinal: int
    zone: int
    status: str
    hold_id: UUID | None
    companion_of: tuple[int, ...] | None = None
    is_wheelchair: bool = False


class Held(msgspec.Struct, array_like=True, eq=False):
    """A hold's rows: what they have in common, and each line's zone, seat (none for places) and quantity."""

    hold_id: UUID
    user_id: UUID
    status: str
    ends_ms: int
    created_ms: int
    ttl_ms: int
    fingerprint: str
    address: str
    cart: str
    checkout: str
    extension: str
    epoch: int
    seq: int
    lines: tuple[tuple[int, int | None, int], ...]
    declined: bool = False

    @property
    def seats(self) -> tuple[Pair, ...]:
        return tuple(Pair(zone, ordinal) for zone, ordinal, _ in self.lines if ordinal is not None)

    @property
    def quantities(self) -> tuple[Pair, ...]:
        return tuple(Pair(zone, quantity) for zone, ordinal, quantity in self.lines if ordinal is None)

    @property
    def block(self) -> Block:
        return Block(self.seats, self.quantities)

    @property
    def ordinals(self) -> tuple[int, ...]:
        return tuple(ordinal for _, ordinal, _ in self.lines if ordinal is not None)

    @property
    def units(self) -> int:
        return sum(quantity for _, _, quantity in self.lines)

    def is_live(self, now_ms: int) -> bool:
        return self.status == ACTIVE and self.ends_ms > now_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Past its time, and nobody has ended it yet."""
        return self.status == ACTIVE and self.ends_ms <= now_ms

    def stored(self) -> StoredHold:
        """The hold in the form in which Redis has it on record."""
        record = HoldRecord(
            user_id=self.user_id,
            state=_STATES[self.status],
            seq=self.seq,
            created_ms=self.created_ms,
            ttl_ms=self.ttl_ms,
            seats=self.seats,
            quantities=self.quantities,
            fingerprint=self.fingerprint,
            address=self.address,
            cart=self.cart,
            checkout=self.checkout,
            extension=self.extension,
        )
        return StoredHold(self.hold_id, self.ends_ms if self.status == ACTIVE else 0, record)


class Sighting(msgspec.Struct):
    """What look_at_event.sql returns.

    `event` is its version, its state, whether it is in service, and how full zones may be while companion seats are
    kept.
    """

    mode: str | None
    epoch: int | None
    seq: int | None
    now_ms: int
    event: tuple[str, str, bool, int] | None
    zones: list[ZoneCounts] | None
    seats: list[Seat] | None
    holds: list[Held] | None
    overdue: list[UUID] | None


class Locks(Protocol):
    """What a view can still ask of the transaction that it was read in."""

    async def lock_seats(self, ordinals: Iterable[int]) -> set[int]:
        """Lock seats without waiting; returns those that were not locked by somebody else."""
        ...

    async def list_free_seats(self, after: int, last: int) -> list[int]:
        """The next free seats after an ordinal, up to another; nothing when there are no more."""
        ...


class View:
    """An event's rows, as far as they were asked for, and the operations decided on them so far."""

    def __init__(self, sighting: Sighting, event: EventIds, shard: int, locks: Locks | None = None) -> None:
        self.event = event
        self.served = sighting.mode == _SERVED_HERE
        self.now_ms = sighting.now_ms
        self.is_stored = sighting.event is not None
        version, state, in_service, self.companion_percent = sighting.event or ("", "", False, 0)
        self.version: str | None = version if in_service else None
        self.state = state
        self.zones = {zone.zone: zone for zone in sighting.zones or ()}
        self.seats = {seat.ordinal: seat for seat in sighting.seats or ()}
        self.holds = {hold.hold_id: hold for hold in sighting.holds or ()}
        self._by_holder: dict[UUID | str, list[Held]] = {}
        for hold in self.holds.values():
            self._list(hold)
        self.overdue = [self.holds[hold_id] for hold_id in sighting.overdue or ()]
        self.seq = sighting.seq or 0
        self.operations: list[Operation] = []
        self._shard = shard
        self._epoch = sighting.epoch or 0
        self._locks = locks
        self._locked: set[int] = set()
        self._free: dict[int, FreeSeats] = {}
        self._given: set[int] = set()

    # What there is.

    def position(self, seq: int) -> Position:
        return Position(self._shard, self._epoch, seq)

    def position_of(self, *holds: Held) -> Position:
        """The last change of the holds. What another epoch has changed is committed, and needs nothing."""
        return self.position(max((hold.seq for hold in holds if hold.epoch == self._epoch), default=0))

    def owner(self, ordinal: int) -> Held | None:
        """The hold that has a seat, live or overdue."""
        seat = self.seats.get(ordinal)
        return self.holds[seat.hold_id] if seat and seat.status == HELD and seat.hold_id else None

    def taker(self, ordinal: int) -> Held | None:
        """The hold by which somebody has a wheelchair seat, live or sold."""
        seat = self.seats.get(ordinal)
        if seat is None or seat.hold_id is None or seat.status not in (HELD, SOLD):
            return None
        hold = self.holds[seat.hold_id]
        return hold if seat.status == SOLD or hold.is_live(self.now_ms) else None

    def kept_from(self, ordinal: int, user_id: UUID | None, asked: Collection[int], percent: int) -> bool:
        """Whether a companion seat that is free, or about to be, is kept from a user: one of its wheelchair seats is
        taken, whoever took that has not declined it, and the zone is not so full yet. It is kept from nobody who has
        one of its wheelchair seats, or asks for it as well."""
        seat, kept = self.seats[ordinal], False
        for wheelchair in seat.companion_of or ():
            taker = self.taker(wheelchair)
            if wheelchair in asked or (taker and taker.user_id == user_id):
                return False
            kept = kept or (taker is not None and not taker.declined)
        zone = self.zones[seat.zone]
        return kept and 100 * (zone.held + zone.sold) < percent * zone.capacity

    def holds_of(self, user_id: UUID) -> list[Held]:
        """The holds of a user who was asked for: live and recent ones, and what else came along, oldest first."""
        return self._by_holder.get(user_id, [])

    def holds_at(self, address: str) -> list[Held]:
        """The holds of an address that was asked for: live ones, and what else came along, oldest first."""
        return self._by_holder.get(address, [])

    def room(self, zone: int) -> int:
        """Units that a zone's capacity still allows. Blocked seats are out of reach anyway, blocked places not."""
        counts = self.zones[zone]
        return counts.capacity - counts.held - counts.sold - (0 if counts.seats else counts.blocked)

    def lacking(self, wanted: Counter[int], returning: Iterable[Held] = ()) -> tuple[Pair, ...]:
        """The zones without room for what is wanted, and the units each lacks, once some holds gave theirs back."""
        returned: Counter[int] = Counter()
        for hold in returning:
            returned += units_by_zone(hold.seats, hold.quantities)
        missing = ((zone, units - self.room(zone) - returned[zone]) for zone, units in wanted.items())
        return tuple(Pair(zone, units) for zone, units in missing if units > 0)

    # Locks.

    def require_locks(self) -> None:
        """Everything after this may change something. Raises MustLock in a view that was read without locks."""
        if self._locks is None:
            raise MustLock

    def is_foreign(self, ordinal: int) -> bool:
        """Whether somebody else has locked a seat, which is as good as taken."""
        return self._locks is not None and ordinal not in self._locked

    async def lock(self, ordinals: Iterable[int]) -> bool:
        """Lock seats without waiting; whether all of them are locked now."""
        self.require_locks()
        wanted = set(ordinals)
        missing = wanted - self._locked
        if missing and self._locks:
            self._locked |= await self._locks.lock_seats(missing)
        return wanted <= self._locked

    async def lock_all(self, ordinals: Iterable[int]) -> None:
        """Lock seats that are about to change. Raises SeatsLocked if somebody else has one of them."""
        if not await self.lock(ordinals):
            raise SeatsLocked

    async def lock_holds(self, holds: Iterable[Held]) -> None:
        """Lock the seats of holds that are about to change. Raises as lock_all does."""
        await self.lock_all(ordinal for hold in holds for ordinal in hold.ordinals)

    def free_seats(self, zone: int, first: int, last: int, left_out: Container[int] = ()) -> FreeSeats:
        """The free seats of a zone, which stretches from one ordinal to the other, but for some that never count."""
        self.require_locks()
        if zone not in self._free and self._locks:
            self._free[zone] = free = FreeSeats(first, last, self._locks.list_free_seats, left_out)
            free.take(ordinal for ordinal, seat in self.seats.items() if seat.status != AVAILABLE)
            free.give(ordinal for ordinal in self._given if first <= ordinal <= last)
        return self._free[zone]

    async def lockable(self, holds: Iterable[Held]) -> list[Held]:
        """Those of some holds whose seats nobody else has locked; these are locked now."""
        return [hold for hold in holds if await self.lock(hold.ordinals)]

    # Changes, each of them an operation of the log.

    def place(self, hold: Held, caller: Actor, *, orphans: tuple[Pair, ...] = ()) -> None:
        """A new hold on seats and units that every check has allowed, and the seats that it leaves alone."""
        entry = msgspec.structs.replace(self._entry("hold", (hold.hold_id,)), orphans=orphans)
        hold.epoch, hold.seq = entry.epoch, entry.seq
        self.holds[hold.hold_id] = hold
        self._list(hold)
        self._mark(hold.seats, HELD, hold.hold_id)
        self._count(held=units_by_zone(hold.seats, hold.quantities))
        record = hold.stored().record
        self.operations.append(Hold(entry=entry, caller=caller, hold_id=hold.hold_id, record=record))

    def end(
        self,
        holds: Sequence[Held],
        operation: str,
        reason: str,
        caller: Actor,
        *,
        checkout: str = "",
        unknown: Sequence[UUID] = (),
    ) -> None:
        """Holds released or expired: one operation for all of them. Expired and unknown ones have nothing left to give
        back."""
        if not holds and not unknown:
            return
        entry = self._entry(operation, (*(hold.hold_id for hold in holds), *unknown))
        nothing = Block((), ())
        blocks = tuple(hold.block if hold.status == ACTIVE else nothing for hold in holds)
        for hold, block in zip(holds, blocks, strict=True):
            hold.status = EXPIRED if operation == "expire" else CANCELLED
            hold.epoch, hold.seq = entry.epoch, entry.seq
            self._mark(block.seats, AVAILABLE, None)
            self._count(held=_negative(units_by_zone(*block)))
        self.overdue = [hold for hold in self.overdue if hold not in holds]
        blocks += (nothing,) * len(unknown)
        self.operations.append(End(entry=entry, caller=caller, blocks=blocks, reason=reason, checkout=checkout))

    def expire(self, holds: Sequence[Held], caller: Actor) -> None:
        self.end(holds, "expire", "ttl_expired", caller)

    def extend(self, holds: Sequence[Held], ends_ms: Sequence[int], *, key: str, checkout: str, caller: Actor) -> None:
        entry = self._entry("extend", tuple(hold.hold_id for hold in holds))
        for hold, end in zip(holds, ends_ms, strict=True):
            hold.ends_ms, hold.extension, hold.checkout = end, key, checkout or hold.checkout
            hold.epoch, hold.seq = entry.epoch, entry.seq
        self.operations.append(Extend(entry=entry, caller=caller, ends_ms=tuple(ends_ms), checkout=checkout, key=key))

    def sell(self, holds: Sequence[Held], sale: str, caller: Actor) -> None:
        entry = self._entry("sell", tuple(hold.hold_id for hold in holds))
        origins = "".join(_STATES[hold.status] for hold in holds)
        for hold in holds:
            units = units_by_zone(hold.seats, hold.quantities)
            self._count(held=_negative(units) if hold.status == ACTIVE else Counter(), sold=units)
            hold.declined = hold.declined and hold.status == ACTIVE
            hold.status, hold.checkout, hold.epoch, hold.seq = CONVERTED, sale, entry.epoch, entry.seq
            self._mark(hold.seats, SOLD, hold.hold_id)
        self.overdue = [hold for hold in self.overdue if hold not in holds]
        blocks = tuple(hold.block for hold in holds)
        self.operations.append(Sell(entry=entry, caller=caller, blocks=blocks, origins=origins, sale=sale))

    def book(self, hold: Held, wheelchairs: tuple[Pair, ...], kept: tuple[Pair, ...], caller: Actor) -> None:
        """What the audit is told of a hold with wheelchair seats, and of the companion seats kept with them."""
        entry = self._entry("accessible", (hold.hold_id,))
        self.operations.append(Accessible(entry=entry, caller=caller, wheelchairs=wheelchairs, kept=kept))

    def decline(self, hold: Held, wheelchairs: tuple[Pair, ...], caller: Actor) -> None:
        entry = self._entry("decline", (hold.hold_id,))
        hold.declined, hold.epoch, hold.seq = True, entry.epoch, entry.seq
        self.operations.append(Decline(entry=entry, caller=caller, wheelchairs=wheelchairs))

    def administer(
        self,
        operation: str,
        caller: Actor,
        *,
        block: Block | None = None,
        config: tuple[str, ...] = (),
        capacities: tuple[Pair, ...] = (),
    ) -> None:
        """A change of seats on sale, or of the event. Nothing else is decided on the same view."""
        entry = self._entry(operation, ())
        self.operations.append(
            Administer(entry=entry, caller=caller, block=block, config=config, capacities=capacities)
        )

    def _list(self, hold: Held) -> None:
        self._by_holder.setdefault(hold.user_id, []).append(hold)
        self._by_holder.setdefault(hold.address, []).append(hold)

    def _entry(self, operation: str, hold_ids: tuple[UUID, ...]) -> LogEntry:
        self.require_locks()
        self.seq += 1
        ids = self.event
        return LogEntry(
            self._epoch, self.seq, operation, self.now_ms, ids.organization_id, ids.event_id, hold_ids, b"", b""
        )

    def _mark(self, seats: Iterable[Pair], status: str, hold_id: UUID | None) -> None:
        for zone, ordinal in seats:
            known = self.seats.get(ordinal)
            if known is None:
                self.seats[ordinal] = Seat(ordinal, zone, status, hold_id)
            else:
                known.status, known.hold_id = status, hold_id
            free = self._free.get(zone)
            if status == AVAILABLE:
                self._given.add(ordinal)
                if free:
                    free.give([ordinal])
            else:
                self._given.discard(ordinal)
                if free:
                    free.take([ordinal])

    def _count(self, *, held: Counter[int], sold: Counter[int] | None = None) -> None:
        for zone in {*held, *(sold or ())} & self.zones.keys():
            counts = self.zones[zone]
            self.zones[zone] = counts._replace(
                held=counts.held + held[zone], sold=counts.sold + (sold[zone] if sold else 0)
            )


def units_by_zone(seats: Iterable[Pair], quantities: Iterable[Pair]) -> Counter[int]:
    """Units by zone, zones in the order they were first named."""
    units = Counter(seat.zone for seat in seats)
    for zone, quantity in quantities:
        units[zone] += quantity
    return units


def _negative(units: Counter[int]) -> Counter[int]:
    return Counter({zone: -number for zone, number in units.items()})
