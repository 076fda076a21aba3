"""The backend that answers when its decision is committed."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec

from holdfast.engine.acks import Ack, Acks
from holdfast.engine.backend import (
    AdminReply,
    Backend,
    EventReading,
    EventRef,
    Holder,
    HoldReply,
    HoldsReading,
    HoldsReply,
    Position,
)
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory
from holdfast.engine.status import Status

Reply = TypeVar("Reply", HoldReply, HoldsReply, AdminReply)

# Raises Unknown unless a position's epoch is the current one of its shard, at a moment after it was asked.
IsCurrent = Callable[[Position], Awaitable[None]]

# Answers that wrote nothing: their entry may have been committed long ago, and its hold ended in a later epoch.
_REPEATS = (Status.REPEATED, Status.ALREADY_HELD)


class DurableBackend:
    """Implements engine.service.HoldService: calls a backend, then waits for Postgres unless told that Redis is enough.

    Sales and administration always wait; readings are of what Redis has decided.

    A decision that Postgres rejects is returned as the refusal it is; the persister gives the seats back in Redis. When
    the commit takes too long the outcome is Unknown: the caller repeats the request under the same hold id or key.

    `is_current` is asked before a repeat is acknowledged, for which no commit vouches; it may be left out where there
    is one epoch only.
    """

    def __init__(
        self, backend: Backend, acks: Acks, *, timeout_s: float = 5.0, is_current: IsCurrent | None = None
    ) -> None:
        self._backend = backend
        self._acks = acks
        self._is_current = is_current
        self._timeout_s = timeout_s

    async def hold_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        ack: Ack = Ack.POSTGRES,
    ) -> HoldReply:
        reply = await self._backend.hold_seats(event, holder, seats=seats, quantities=quantities)
        return await self._committed(reply, ack)

    async def allocate_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        accessible: bool = False,
        categories: Collection[SeatCategory] = (),
        ack: Ack = Ack.POSTGRES,
    ) -> HoldReply:
        reply = await self._backend.allocate_seats(
            event, holder, zones=zones, count=count, accessible=accessible, categories=categories
        )
        return await self._committed(reply, ack)

    async def decline_companions(
        self, event: EventRef, hold_id: UUID, *, user_id: UUID, meta: bytes = b"", ack: Ack = Ack.POSTGRES
    ) -> AdminReply:
        reply = await self._backend.decline_companions(event, hold_id, user_id=user_id, meta=meta)
        return await self._committed(reply, ack)

    async def offer_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        near: int,
        take: bool,
        ack: Ack = Ack.POSTGRES,
    ) -> HoldReply:
        reply = await self._backend.offer_seats(event, holder, zones=zones, count=count, near=near, take=take)
        return await self._committed(reply, ack)

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
        ack: Ack = Ack.POSTGRES,
    ) -> HoldsReply:
        reply = await self._backend.extend_holds(
            event,
            hold_ids,
            user_id=user_id,
            key=key,
            extension_ms=extension_ms,
            total_ms=total_ms,
            checkout=checkout,
            meta=meta,
        )
        return await self._committed(reply, ack)

    async def release_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID | None,
        reason: str,
        checkout: str = "",
        meta: bytes = b"",
        ack: Ack = Ack.POSTGRES,
    ) -> HoldsReply:
        reply = await self._backend.release_holds(
            event, hold_ids, user_id=user_id, reason=reason, checkout=checkout, meta=meta
        )
        return await self._committed(reply, ack)

    async def confirm_holds(
        self, event: EventRef, hold_ids: Iterable[UUID], *, sale: str, user_id: UUID | None, meta: bytes = b""
    ) -> HoldsReply:
        reply = await self._backend.confirm_holds(event, hold_ids, sale=sale, user_id=user_id, meta=meta)
        return await self._committed(reply, Ack.POSTGRES)

    async def committed(self, position: Position) -> None:
        await self._acks.wait(position, self._timeout_s)

    async def block_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        reply = await self._backend.block_seats(event, seats=seats, quantities=quantities, meta=meta)
        return await self._committed(reply, Ack.POSTGRES)

    async def unblock_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        reply = await self._backend.unblock_seats(event, seats=seats, quantities=quantities, meta=meta)
        return await self._committed(reply, Ack.POSTGRES)

    async def open_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        return await self._committed(await self._backend.open_event(event, meta=meta), Ack.POSTGRES)

    async def set_event_state(
        self, event: CompiledEvent, changed: EventDocument, *, meta: bytes = b""
    ) -> tuple[AdminReply, CompiledEvent]:
        reply, compiled = await self._backend.set_event_state(event, changed, meta=meta)
        return await self._committed(reply, Ack.POSTGRES), compiled

    async def close_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        return await self._committed(await self._backend.close_event(event, meta=meta), Ack.POSTGRES)

    async def read_event(self, organization_id: UUID, event_id: UUID, *, want_map: bool) -> EventReading:
        return await self._backend.read_event(organization_id, event_id, want_map=want_map)

    async def read_holds(
        self, organization_id: UUID, event_id: UUID, *, user_id: UUID | None, hold_ids: Iterable[UUID] = ()
    ) -> HoldsReading:
        return await self._backend.read_holds(organization_id, event_id, user_id=user_id, hold_ids=hold_ids)

    async def _committed(self, reply: Reply, ack: Ack) -> Reply:
        """A refusal wrote nothing and never waits; neither does a caller to whom Redis is enough."""
        if ack is Ack.REDIS or not reply.status.succeeded:
            return reply
        if self._is_current is not None and reply.status in _REPEATS:
            await self._is_current(reply.position)
        if reply.position.seq == 0:
            return reply
        refusal = await self._acks.wait(reply.position, self._timeout_s)
        return reply if refusal is None else _refused(reply, refusal)


def _refused(reply: Reply, refusal: Status) -> Reply:
    """The reply as if the refusal had come from the script."""
    if isinstance(reply, HoldReply):
        nothing: dict[str, object] = {"hold_id": None, "until_ms": 0, "seats": (), "quantities": ()}
    elif isinstance(reply, HoldsReply):
        outcomes = tuple(refusal for _ in reply.outcomes)
        nothing = {"outcomes": outcomes, "ends_ms": (), "seats": (), "quantities": ()}
    else:
        nothing = {"seats": (), "quantities": ()}
    return msgspec.structs.replace(reply, status=refusal, **nothing)
