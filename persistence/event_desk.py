"""Changing events where they live twice: the document and its rows in Postgres, the seats in service in Redis.

Postgres is first. A change that dies between the two is repeated, and then brings Redis to what Postgres has. An event
of a shard that Postgres serves is changed there only: Redis gets it when it is built anew.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.backend import AdminReply, EventReading, EventRef, Position
from holdfast.engine.epochs import Epochs, Mode
from holdfast.engine.errors import Fenced
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, EventState, compile_event
from holdfast.engine.plan import EventPlan
from holdfast.engine.records import ZoneCounts
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.status import Status
from holdfast.persistence.catalogue import (
    CatalogueError,
    NoSuchEvent,
    SaveResult,
    audit_event,
    changing,
    is_as_new,
    load_event,
    organization_of,
    read_counts,
    save_event,
    set_event_version,
)
from holdfast.persistence.controls import ask_controls
from holdfast.persistence.layouts import remember_plan, resolve_plan
from holdfast.persistence.pool import Connection
from holdfast.persistence.reconcile import PAUSED
from holdfast.persistence.row_lock_backend import RowLockBackend

# A hundred thousand seats take a second or two to save, on a busy server longer.
STATEMENT_TIMEOUT_MS = 60_000

# Nobody buys seats of an event that was called off or put away, so it does not come back.
_OVER = (EventState.CANCELLED, EventState.ARCHIVED)


class EventBackend(Protocol):
    """What is asked of Redis, and of whoever brings it to Postgres."""

    async def committed(self, position: Position) -> None: ...

    async def read_event(self, organization_id: UUID, event_id: UUID, *, want_map: bool) -> EventReading: ...

    async def open_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply: ...

    async def set_event_state(
        self, event: CompiledEvent, changed: EventDocument, *, meta: bytes = b""
    ) -> tuple[AdminReply, CompiledEvent]: ...


class Unconfirmed(RedisBackend):
    """Redis, for those who do not wait until anybody has brought anything to Postgres."""

    async def committed(self, position: Position) -> None:
        """Nobody is waited for."""


class EventCounts(msgspec.Struct, frozen=True):
    """What is counted of an event, and where: in Redis while it is in service there, else in Postgres."""

    source: str
    zones: tuple[ZoneCounts, ...]


class EventDesk:
    """The changes that operators and organisers make to events; `actor` is whom the audit names.

    Raises CatalogueError for what cannot be done, LayoutError or PolicyError for documents that contradict themselves,
    and BackendError.
    """

    def __init__(
        self, connection: Connection, backend: EventBackend, rows: RowLockBackend, epochs: Epochs, actor: Actor
    ) -> None:
        self._connection = connection
        self._backend = backend
        self._rows = rows
        self._epochs = epochs
        self._actor = actor

    async def find(self, event_id: UUID, organization_id: UUID | None = None) -> CompiledEvent:
        """An event by its id, of one organisation or of any. Raises NoSuchEvent."""
        owner = organization_id or await organization_of(self._connection, event_id)
        event = await load_event(self._connection, owner, event_id) if owner else None
        if event is None:
            raise NoSuchEvent(f"There is no event {event_id}.")
        return event

    async def owner(self, event_id: UUID) -> UUID | None:
        """The organisation whose event this is already."""
        return await organization_of(self._connection, event_id)

    async def load(self, organization_id: UUID, wanted: EventDocument | EventPlan) -> tuple[SaveResult, CompiledEvent]:
        """Save an event and put it into service, or change both to this document, or to what a plan makes."""
        async with changing(self._connection, wanted.event_id):
            return await self._change(organization_id, wanted, serve=True)

    async def open(self, event: EventRef) -> CompiledEvent:
        """Put an event into service and on sale."""
        _, opened = await self._set_state(event, lambda state: state if _sells(state) else EventState.LIVE)
        return opened

    async def close(self, event: EventRef) -> CompiledEvent:
        """Take an event off sale; what is held can still be bought, and Redis keeps serving that."""
        _, closed = await self.set_state(event, EventState.CLOSED)
        return closed

    async def set_state(self, event: EventRef, state: EventState) -> tuple[SaveResult, CompiledEvent]:
        """Change an event's state, which the very next hold meets. One that goes on sale is put into service."""
        return await self._set_state(event, lambda _: state)

    async def refresh(self, event: EventRef) -> tuple[str, bool]:
        """Bring both servers to the version of the stored document, and nothing into service.

        Returns the version, and whether one of the two had another.
        """
        async with changing(self._connection, event.event_id):
            found = await self.find(event.event_id, event.organization_id)
            differed = await set_event_version(self._connection, found)
            if await self._is_in_redis(found.event_id):
                reading = await self._backend.read_event(found.organization_id, found.event_id, want_map=False)
                # One that somebody wants to replace takes no holds until that is done.
                if reading.status.succeeded and not reading.version.startswith(PAUSED.decode()):
                    differed |= reading.version != found.version
                    await self._change_in_redis(found, reading)
            return found.version, differed

    async def counts(self, event: CompiledEvent) -> EventCounts:
        """What is free, held, sold and blocked right now."""
        if await self._is_in_redis(event.event_id):
            reading = await self._backend.read_event(event.organization_id, event.event_id, want_map=False)
            if reading.status.succeeded:
                return EventCounts("redis", reading.zones)
        return EventCounts("postgres", await read_counts(self._connection, event))

    async def _set_state(
        self, event: EventRef, choose: Callable[[EventState], EventState]
    ) -> tuple[SaveResult, CompiledEvent]:
        async with changing(self._connection, event.event_id):
            document = (await self.find(event.event_id, event.organization_id)).document
            state = choose(document.state)
            if document.state in _OVER and state is not document.state:
                raise CatalogueError(f"The event {event.event_id} is {document.state} and stays so.")
            wanted = msgspec.structs.replace(document, state=state)
            return await self._change(event.organization_id, wanted, serve=_sells(state))

    async def _change(
        self, organization_id: UUID, wanted: EventDocument | EventPlan, *, serve: bool
    ) -> tuple[SaveResult, CompiledEvent]:
        """Bring both servers to what is wanted, while nobody else changes the event."""
        result = await self._save(organization_id, wanted)
        # Read back, because Postgres may spell a number in another way, which would be another version.
        event = await self.find(wanted.event_id, organization_id)
        # Asked only now: what was saved before the shard changed to Redis was taken along.
        if await self._is_in_redis(event.event_id):
            await self._bring_to_redis(event, serve=serve)
            return result, event
        if result is SaveResult.CHANGED:
            # Where Redis serves, the audit hears of it from the log.
            changes = {"version": event.version, "state": event.document.state}
            await audit_event(self._connection, event, "event_changed", changes, self._actor)
        if serve:
            await self._serve_from_rows(event)
        return result, event

    async def _save(self, organization_id: UUID, wanted: EventDocument | EventPlan) -> SaveResult:
        async with self._connection.transaction():
            if isinstance(wanted, EventPlan):
                document = await resolve_plan(self._connection, organization_id, wanted)
            else:
                document = wanted
            # A hundred thousand seats take long enough to keep everybody else waiting.
            event = await asyncio.to_thread(compile_event, organization_id, document)
            result = await save_event(self._connection, event, self._epochs.shards)
            if isinstance(wanted, EventPlan):
                await remember_plan(self._connection, organization_id, wanted)
        return result

    async def _is_in_redis(self, event_id: UUID) -> bool:
        await ask_controls(self._connection, self._epochs)
        return self._epochs.state(shard_of(event_id, self._epochs.shards)).mode is Mode.REDIS

    async def _bring_to_redis(self, event: CompiledEvent, *, serve: bool) -> None:
        reading = await self._backend.read_event(event.organization_id, event.event_id, want_map=False)
        if reading.status is Status.EVENT_NOT_FOUND:
            if serve:
                await self._serve(event)
            return
        _expect("Redis", reading.status, event)
        await self._change_in_redis(event, reading)

    async def _change_in_redis(self, event: CompiledEvent, reading: EventReading) -> None:
        if reading.version == event.version:
            # Somebody has done it, perhaps a moment ago and without having heard that it is committed.
            await self._backend.committed(reading.position)
        else:
            meta = self._actor.meta()
            reply, _ = await self._backend.set_event_state(_as_in_redis(event, reading), event.document, meta=meta)
            _expect("Redis", reply.status, event)

    async def _serve(self, event: CompiledEvent) -> None:
        # The document knows nothing of what was held or sold since: opened from it, sold seats would look free.
        if not await is_as_new(self._connection, event):
            raise CatalogueError(
                f"The event {event.event_id} has seats held, sold or blocked in Postgres and is not in Redis: "
                f"it has to be rebuilt there, not loaded."
            )
        reply = await self._backend.open_event(event, meta=self._actor.meta())
        _expect("Redis", reply.status, event)

    async def _serve_from_rows(self, event: CompiledEvent) -> None:
        reply = await self._rows.open_event(event, meta=self._actor.meta())
        if reply.status is not Status.EVENT_EXISTS:
            _expect("Postgres", reply.status, event)


def _sells(state: EventState) -> bool:
    return state.selling == 1


def _expect(server: str, status: Status, event: CompiledEvent) -> None:
    if status is Status.FENCED:
        raise Fenced(f"the shard of the event {event.event_id} is changing servers")
    if not status.succeeded:
        raise CatalogueError(f"{server} refused the event {event.event_id}: {status.name.lower()}.")


def _as_in_redis(event: CompiledEvent, reading: EventReading) -> CompiledEvent:
    """The event in the version and with the capacities that Redis has, which is what a change is made against."""
    if [zone.seats for zone in reading.zones] != [len(zone.document.seats) for zone in event.zones]:
        raise CatalogueError(f"The event {event.event_id} has other zones or seats in Redis than in Postgres.")
    zones = tuple(
        msgspec.structs.replace(zone, document=msgspec.structs.replace(zone.document, capacity=counts.capacity))
        for zone, counts in zip(event.zones, reading.zones, strict=True)
    )
    return msgspec.structs.replace(event, version=reading.version, zones=zones)
