"""The service of a front end over both backends: each shard is served by the one that its mode names.

- A call goes to Redis or to Postgres by the mode this process knows. Whichever is not the one is fenced off, says so,
  and the call is made again once the new mode is known, if that comes soon.
- A call that has not run may go to the other backend. One of which nobody knows whether it has run is made again only
  if it carries its own identity (a hold id, an extension's key, a sale), and only in a later epoch: there, what was
  committed is found, and what was not never will be.
- While a shard's breaker is open its calls are turned away at once. One that the fence has opened is about to
  get a new epoch, so for that calls wait a little.
- While Postgres cannot be heard, only what Redis alone may acknowledge goes on.
- What became of holds is counted here, whoever decided.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from holdfast.engine import telemetry
from holdfast.engine.acks import Ack
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
from holdfast.engine.breaker import Breakers
from holdfast.engine.epochs import Epochs, Mode, ShardState
from holdfast.engine.errors import Fenced, Overloaded, Unavailable, Uncommitted, Unknown
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory
from holdfast.engine.service import HoldService
from holdfast.engine.status import Status

PATIENCE_S = 1.0

# As often as a shard may change under one call; more is somebody who switches for fun.
_ATTEMPTS = 8

Reply = TypeVar("Reply", HoldReply, HoldsReply, AdminReply, EventReading, HoldsReading)


class FailoverService:
    """Implements engine.service.HoldService. `redis` waits for commits, `rows` has committed when it answers."""

    def __init__(
        self,
        redis: HoldService,
        rows: Backend,
        epochs: Epochs,
        breakers: Breakers,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._redis = redis
        self._rows = rows
        self._epochs = epochs
        self._breakers = breakers
        self._patience_s = patience_s

    async def hold_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        ack: Ack = Ack.POSTGRES,
    ) -> HoldReply:
        wish, places = tuple(seats), tuple(quantities)
        return await self._serve(
            event.event_id,
            lambda: self._redis.hold_seats(event, holder, seats=wish, quantities=places, ack=ack),
            lambda: self._rows.hold_seats(event, holder, seats=wish, quantities=places),
            ack=ack,
        )

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
        wish: dict[str, Any] = {"zones": zones, "count": count, "accessible": accessible, "categories": categories}
        return await self._serve(
            event.event_id,
            lambda: self._redis.allocate_seats(event, holder, **wish, ack=ack),
            lambda: self._rows.allocate_seats(event, holder, **wish),
            ack=ack,
        )

    async def decline_companions(
        self, event: EventRef, hold_id: UUID, *, user_id: UUID, meta: bytes = b"", ack: Ack = Ack.POSTGRES
    ) -> AdminReply:
        return await self._serve(
            event.event_id,
            lambda: self._redis.decline_companions(event, hold_id, user_id=user_id, meta=meta, ack=ack),
            lambda: self._rows.decline_companions(event, hold_id, user_id=user_id, meta=meta),
            ack=ack,
        )

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
        wish: dict[str, Any] = {"zones": zones, "count": count, "near": near, "take": take}
        return await self._serve(
            event.event_id,
            lambda: self._redis.offer_seats(event, holder, **wish, ack=ack),
            lambda: self._rows.offer_seats(event, holder, **wish),
            ack=ack,
        )

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
        ids = tuple(hold_ids)
        reply = await self._serve(
            event.event_id,
            lambda: self._redis.extend_holds(
                event,
                ids,
                user_id=user_id,
                key=key,
                extension_ms=extension_ms,
                total_ms=total_ms,
                checkout=checkout,
                meta=meta,
                ack=ack,
            ),
            lambda: self._rows.extend_holds(
                event,
                ids,
                user_id=user_id,
                key=key,
                extension_ms=extension_ms,
                total_ms=total_ms,
                checkout=checkout,
                meta=meta,
            ),
            ack=ack,
        )
        telemetry.count_extension(reply.status, reply.outcomes)
        return reply

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
        ids = tuple(hold_ids)
        reply = await self._serve(
            event.event_id,
            lambda: self._redis.release_holds(
                event, ids, user_id=user_id, reason=reason, checkout=checkout, meta=meta, ack=ack
            ),
            lambda: self._rows.release_holds(event, ids, user_id=user_id, reason=reason, checkout=checkout, meta=meta),
            ack=ack,
            repeatable=False,
        )
        telemetry.count_ends(telemetry.released, reply.outcomes if reply.status.succeeded else ())
        return reply

    async def confirm_holds(
        self, event: EventRef, hold_ids: Iterable[UUID], *, sale: str, user_id: UUID | None, meta: bytes = b""
    ) -> HoldsReply:
        ids = tuple(hold_ids)
        reply = await self._serve(
            event.event_id,
            lambda: self._redis.confirm_holds(event, ids, sale=sale, user_id=user_id, meta=meta),
            lambda: self._rows.confirm_holds(event, ids, sale=sale, user_id=user_id, meta=meta),
        )
        telemetry.count_ends(telemetry.converted, reply.outcomes if reply.status.succeeded else ())
        return reply

    async def block_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        wish, places = tuple(seats), tuple(quantities)
        return await self._administer(
            event,
            lambda: self._redis.block_seats(event, seats=wish, quantities=places, meta=meta),
            lambda: self._rows.block_seats(event, seats=wish, quantities=places, meta=meta),
        )

    async def unblock_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        wish, places = tuple(seats), tuple(quantities)
        return await self._administer(
            event,
            lambda: self._redis.unblock_seats(event, seats=wish, quantities=places, meta=meta),
            lambda: self._rows.unblock_seats(event, seats=wish, quantities=places, meta=meta),
        )

    async def open_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        return await self._administer(
            event,
            lambda: self._redis.open_event(event, meta=meta),
            lambda: self._rows.open_event(event, meta=meta),
        )

    async def set_event_state(
        self, event: CompiledEvent, changed: EventDocument, *, meta: bytes = b""
    ) -> tuple[AdminReply, CompiledEvent]:
        current = event

        async def change(backend: HoldService | Backend) -> AdminReply:
            nonlocal current
            reply, current = await backend.set_event_state(event, changed, meta=meta)
            return reply

        reply = await self._administer(event, lambda: change(self._redis), lambda: change(self._rows))
        return reply, current

    async def close_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        return await self._administer(
            event,
            lambda: self._redis.close_event(event, meta=meta),
            lambda: self._rows.close_event(event, meta=meta),
        )

    async def read_event(self, organization_id: UUID, event_id: UUID, *, want_map: bool) -> EventReading:
        return await self._serve(
            event_id,
            lambda: self._redis.read_event(organization_id, event_id, want_map=want_map),
            lambda: self._rows.read_event(organization_id, event_id, want_map=want_map),
            ack=Ack.REDIS,
        )

    async def read_holds(
        self, organization_id: UUID, event_id: UUID, *, user_id: UUID | None, hold_ids: Iterable[UUID] = ()
    ) -> HoldsReading:
        ids = tuple(hold_ids)
        return await self._serve(
            event_id,
            lambda: self._redis.read_holds(organization_id, event_id, user_id=user_id, hold_ids=ids),
            lambda: self._rows.read_holds(organization_id, event_id, user_id=user_id, hold_ids=ids),
            ack=Ack.REDIS,
        )

    async def committed(self, position: Position) -> None:
        """Return once it is in Postgres, where everything is that Postgres has decided."""
        if self._epochs.state(position.shard) != ShardState(Mode.DB, position.epoch):
            await self._redis.committed(position)

    async def _administer(
        self,
        event: CompiledEvent,
        in_redis: Callable[[], Awaitable[AdminReply]],
        in_rows: Callable[[], Awaitable[AdminReply]],
    ) -> AdminReply:
        return await self._serve(event.event_id, in_redis, in_rows, repeatable=False)

    async def _serve(
        self,
        event_id: UUID,
        in_redis: Callable[[], Awaitable[Reply]],
        in_rows: Callable[[], Awaitable[Reply]],
        *,
        ack: Ack = Ack.POSTGRES,
        repeatable: bool = True,
    ) -> Reply:
        """Make a call where its shard is served, and again where that moves, within this service's patience."""
        shard = shard_of(event_id, self._epochs.shards)
        deadline = time.monotonic() + self._patience_s
        for _ in range(_ATTEMPTS):
            state = self._epochs.state(shard)
            try:
                if state.mode is Mode.REDIS:
                    return await self._from_redis(shard, state, in_redis, ack)
                if state.mode is Mode.DB:
                    return _served(await in_rows())
                refusal: Unavailable | Unknown = Unavailable(f"shard {shard} is not in service yet")
            except Fenced as error:
                refusal = error
                self._epochs.wanted.set()
            except Unknown as error:
                # Only a later epoch knows for sure what became of the call.
                if not repeatable:
                    raise
                refusal = error
            if not await self._epochs.moved_on(shard, state, deadline - time.monotonic()):
                raise refusal
            # What follows a change is a new call, and has its own time.
            deadline = time.monotonic() + self._patience_s
        raise Unavailable(f"shard {shard} changes its mode too often")

    async def _from_redis(self, shard: int, state: ShardState, call: Callable[[], Awaitable[Reply]], ack: Ack) -> Reply:
        opinion = self._breakers.opinion(shard)
        if opinion is not None:
            kind = Fenced if opinion.fenced else Unavailable
            raise kind(f"shard {shard} cannot be used: {opinion.reason}")
        if ack is Ack.POSTGRES and not self._epochs.heard:
            raise Unavailable("Postgres does not answer, so nothing durable can be promised")
        try:
            reply = _served(await call())
        except Fenced as error:
            self._breakers.trip(shard, state.epoch, str(error))
            raise
        except Overloaded:
            raise
        except (Unavailable, Unknown) as error:
            if not isinstance(error, Uncommitted):
                self._breakers.failed(shard, str(error))
            raise
        self._breakers.succeeded(shard)
        return reply


def _served(reply: Reply) -> Reply:
    """A reply, unless it says that another one serves the shard."""
    if reply.status is Status.FENCED:
        raise Fenced("the shard is served by another backend, or in another epoch")
    return reply
