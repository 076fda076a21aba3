"""What every backend can do, and how it answers. Redis scripts and Postgres row locks give the same outcomes."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory
from holdfast.engine.records import HoldRecord, Pair, ZoneCounts
from holdfast.engine.status import Status


class Holder(msgspec.Struct, frozen=True):
    """Who asks for a hold, and under what name: everything about a hold request but the seats."""

    hold_id: UUID
    user_id: UUID
    fingerprint: str = ""
    address: str = ""
    cart: str = ""
    ttl_ms: int | None = None
    meta: bytes = b""


class EventRef(Protocol):
    """Whatever names an event: a compiled one, or just its ids."""

    @property
    def organization_id(self) -> UUID: ...

    @property
    def event_id(self) -> UUID: ...


class EventIds(msgspec.Struct, frozen=True):
    """An event by name."""

    organization_id: UUID
    event_id: UUID


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in a shard's log. A reply is durable once the log is persisted up to it; seq 0 needs nothing."""

    shard: int
    epoch: int
    seq: int


# When a refusal lifts whose cause is final: the seat is sold.
NEVER_MS = -1


class HoldReply(msgspec.Struct, frozen=True):
    """The answer to a request to hold. For a refusal `until_ms` says when it may lift, 0 if that is not known, and
    `seats` and `quantities` what is in the way."""

    status: Status
    hold_id: UUID | None
    until_ms: int
    now_ms: int
    position: Position
    seats: tuple[Pair, ...]
    quantities: tuple[Pair, ...]


class HoldsReply(msgspec.Struct, frozen=True):
    """The answer to an operation on holds: an outcome for each, in the order asked, and the units concerned."""

    status: Status
    now_ms: int
    position: Position
    outcomes: tuple[Status, ...]
    ends_ms: tuple[int, ...] = ()
    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()


class AdminReply(msgspec.Struct, frozen=True):
    """The answer to an administrative operation on an event."""

    status: Status
    now_ms: int
    position: Position
    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()


class ExpireReply(msgspec.Struct, frozen=True):
    """The answer to one bounded run over an event's overdue holds."""

    status: Status
    now_ms: int
    position: Position
    expired: int
    forgotten: int


class EventReading(msgspec.Struct, frozen=True):
    """An event as it is at one position of the log."""

    status: Status
    now_ms: int
    position: Position
    version: str
    state: str
    opens_ms: int
    closes_ms: int
    zones: tuple[ZoneCounts, ...]
    map: bytes


class StoredHold(msgspec.Struct, frozen=True):
    """A hold on record; `ends_ms` is 0 once it has ended."""

    hold_id: UUID
    ends_ms: int
    record: HoldRecord


class HoldsReading(msgspec.Struct, frozen=True):
    """The holds that were asked for and exist."""

    status: Status
    now_ms: int
    position: Position
    holds: tuple[StoredHold, ...]


class Backend(Protocol):
    """The operations of Holdfast. Each is atomic; each may raise a BackendError and nothing else."""

    async def hold_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
    ) -> HoldReply: ...

    async def allocate_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        accessible: bool = False,
        categories: Collection[SeatCategory] = (),
    ) -> HoldReply:
        """Hold so many seats of one zone, the best of zones in order of preference; see engine/choosing.py.

        `accessible` asks for a wheelchair seat and companion seats of it, which nobody else is given in this way. Of
        other seats `categories` are those to choose from, all if there are none; zones without any are
        `seat_not_found`.
        """
        ...

    async def decline_companions(
        self, event: EventRef, hold_id: UUID, *, user_id: UUID, meta: bytes = b""
    ) -> AdminReply:
        """Let go of the companion seats that are kept for the buyer of a hold's wheelchair seats, which the reply has.

        A hold without any is answered with `seat_not_found`.
        """
        ...

    async def offer_seats(
        self, event: CompiledEvent, holder: Holder, *, zones: Sequence[int], count: int, near: int, take: bool
    ) -> HoldReply:
        """After a refusal: so many free seats next to each other in the first of the zones that has them, the nearest
        to an ordinal if that is in the zone, else the best; see engine/choosing.py. `take` holds them; else the status
        is `offered`, the reply has the seats, and nothing is written."""
        ...

    async def extend_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID,
        key: str,
        extension_ms: int,
        total_ms: int,
        checkout: str = "",
        meta: bytes = b"",
    ) -> HoldsReply: ...

    async def release_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID | None,
        reason: str,
        checkout: str = "",
        meta: bytes = b"",
    ) -> HoldsReply: ...

    async def confirm_holds(
        self, event: EventRef, hold_ids: Iterable[UUID], *, sale: str, user_id: UUID | None, meta: bytes = b""
    ) -> HoldsReply: ...

    async def expire_holds(self, organization_id: UUID, event_id: UUID, *, limit: int) -> ExpireReply: ...

    async def block_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply: ...

    async def unblock_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply: ...

    async def open_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply: ...

    async def set_event_state(
        self, event: CompiledEvent, changed: EventDocument, *, meta: bytes = b""
    ) -> tuple[AdminReply, CompiledEvent]: ...

    async def close_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply: ...

    async def read_event(self, organization_id: UUID, event_id: UUID, *, want_map: bool) -> EventReading: ...

    async def read_holds(
        self, organization_id: UUID, event_id: UUID, *, user_id: UUID | None, hold_ids: Iterable[UUID] = ()
    ) -> HoldsReading: ...
