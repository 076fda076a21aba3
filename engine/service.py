"""What the front end asks of the engine: every operation of Holdfast, answered when its result is as durable as wanted.

The front end knows this protocol and nothing behind it, so that what serves a shard (Redis, or Postgres while Redis is
away) can change between two requests.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from holdfast.engine.acks import Ack
from holdfast.engine.backend import (
    AdminReply,
    EventReading,
    EventRef,
    Holder,
    HoldReply,
    HoldsReading,
    HoldsReply,
    Position,
)
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory


class HoldService(Protocol):
    """The operations, each atomic; each may raise a BackendError and nothing else.

    With `ack` postgres, the default, a success is committed when it is returned. A reply whose position has the number
    0 needs no commit, so it is durable whatever was asked.
    """

    async def hold_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        ack: Ack = Ack.POSTGRES,
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
        ack: Ack = Ack.POSTGRES,
    ) -> HoldReply: ...

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
    ) -> HoldReply: ...

    async def decline_companions(
        self, event: EventRef, hold_id: UUID, *, user_id: UUID, meta: bytes = b"", ack: Ack = Ack.POSTGRES
    ) -> AdminReply: ...

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
        ack: Ack = Ack.POSTGRES,
    ) -> HoldsReply: ...

    async def confirm_holds(
        self, event: EventRef, hold_ids: Iterable[UUID], *, sale: str, user_id: UUID | None, meta: bytes = b""
    ) -> HoldsReply: ...

    async def committed(self, position: Position) -> None:
        """Return once everything up to a position that a reading gave is in Postgres."""

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
