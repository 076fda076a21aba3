"""Changing events where they live twice: the document and its rows in Postgres, the seats in service in Redis.

Postgres is first. A command that dies between the two is repeated, and then brings Redis to what Postgres has. An event
of a shard that Postgres serves is changed there only: Redis gets it when it is built anew.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from uuid import UUID

import asyncpg
import msgspec

from holdfast.engine.audit import Caller
from holdfast.engine.backend import EventReading
from holdfast.engine.epochs import Epochs, Mode
from holdfast.engine.errors import BackendError
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, EventState, compile_event
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.records import ZoneCounts
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.settings import Settings, variable
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.errors import OperatorError
from holdfast.persistence.catalogue import (
    CatalogueError,
    SaveResult,
    changing,
    is_as_new,
    load_event,
    organization_of,
    read_counts,
    save_event,
)
from holdfast.persistence.controls import ask_controls, read_epochs
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, connect, open_pool
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.sql import query

# A hundred thousand seats take a second or two to save, on a busy server longer.
STATEMENT_TIMEOUT_MS = 60_000
META = Caller(user_agent="holdfast event").meta()


class EventCounts(msgspec.Struct, frozen=True):
    """What is counted of an event, and where: in Redis while it is in service there, else in Postgres."""

    source: str
    zones: tuple[ZoneCounts, ...]


class EventDesk:
    """The changes that an operator makes to events."""

    def __init__(self, connection: Connection, backend: RedisBackend, rows: RowLockBackend, epochs: Epochs) -> None:
        self._connection = connection
        self._rows = rows
        self._backend = backend
        self._epochs = epochs

    async def find(self, event_id: UUID, organization_id: UUID | None = None) -> CompiledEvent:
        """An event by its id, of one organisation or of any. Raises OperatorError if there is none."""
        owner = organization_id or await organization_of(self._connection, event_id)
        event = await load_event(self._connection, owner, event_id) if owner else None
        if event is None:
            raise OperatorError(f"There is no event {event_id}.")
        return event

    async def owner(self, event_id: UUID) -> UUID | None:
        """The organisation whose event this is already."""
        return await organization_of(self._connection, event_id)

    async def load(self, organization_id: UUID, document: EventDocument) -> tuple[SaveResult, CompiledEvent]:
        """Save an event and put it into service, or change both to this document."""
        return await self._change(organization_id, document, serve=True)

    async def open(self, event: CompiledEvent) -> CompiledEvent:
        """Put an event into service and on sale."""
        _refuse_if_over(event)
        document = event.document
        if not document.state.selling:
            document = msgspec.structs.replace(document, state=EventState.LIVE)
        _, opened = await self._change(event.organization_id, document, serve=True)
        return opened

    async def close(self, event: CompiledEvent) -> CompiledEvent:
        """Take an event off sale; what is held can still be bought, and Redis keeps serving that."""
        _refuse_if_over(event)
        document = msgspec.structs.replace(event.document, state=EventState.CLOSED)
        _, closed = await self._change(event.organization_id, document, serve=False)
        return closed

    async def counts(self, event: CompiledEvent) -> EventCounts:
        """What is free, held, sold and blocked right now."""
        if await self._is_in_redis(event.event_id):
            reading = await self._backend.read_event(event.organization_id, event.event_id, want_map=False)
            if reading.status.succeeded:
                return EventCounts("redis", reading.zones)
        return EventCounts("postgres", await read_counts(self._connection, event))

    async def _change(
        self, organization_id: UUID, document: EventDocument, *, serve: bool
    ) -> tuple[SaveResult, CompiledEvent]:
        try:
            async with changing(self._connection, document.event_id):
                result = await save_event(
                    self._connection, compile_event(organization_id, document), self._epochs.shards
                )
                # Read back, because Postgres may spell a number in another way, which would be another version.
                event = await self.find(document.event_id, organization_id)
                # Asked only now: what was saved before the shard changed to Redis was taken along.
                if await self._is_in_redis(document.event_id):
                    await self._bring_to_redis(event, serve=serve)
                elif serve:
                    await self._serve_from_rows(event)
        except CatalogueError as error:
            raise OperatorError(str(error)) from error
        except LayoutError as error:
            raise OperatorError(f"{error}.") from error
        return result, event

    async def _is_in_redis(self, event_id: UUID) -> bool:
        await ask_controls(self._connection, self._epochs)
        return self._epochs.state(shard_of(event_id, self._epochs.shards)).mode is Mode.REDIS

    async def _bring_to_redis(self, event: CompiledEvent, *, serve: bool) -> None:
        reading = await self._backend.read_event(event.organization_id, event.event_id, want_map=False)
        if reading.status is Status.EVENT_NOT_FOUND:
            if serve:
                await self._serve(event)
            return
        _expect(reading.status, event)
        if reading.version != event.version:
            reply, _ = await self._backend.set_event_state(_as_in_redis(event, reading), event.document, meta=META)
            _expect(reply.status, event)

    async def _serve_from_rows(self, event: CompiledEvent) -> None:
        reply = await self._rows.open_event(event, meta=META)
        if reply.status is not Status.EVENT_EXISTS and not reply.status.succeeded:
            raise OperatorError(f"Postgres refused the event {event.event_id}: {reply.status.name.lower()}.")

    async def _serve(self, event: CompiledEvent) -> None:
        # The document knows nothing of what was held or sold since: opened from it, sold seats would look free.
        if not await is_as_new(self._connection, event):
            raise OperatorError(
                f"The event {event.event_id} has seats held, sold or blocked in Postgres and is not in Redis: "
                f"it has to be rebuilt there, not loaded."
            )
        reply = await self._backend.open_event(event, meta=META)
        _expect(reply.status, event)


@asynccontextmanager
async def open_desk(settings: Settings) -> AsyncIterator[EventDesk]:
    """Connect to both servers. Postgres says how many shards it was set up with, so that no setting can disagree.

    Whatever goes wrong with a server within the block ends as an OperatorError.
    """
    with server_errors_explained():
        connection = await connect(settings.postgres_dsn, name="event", statement_timeout_ms=STATEMENT_TIMEOUT_MS)
        try:
            epochs = await read_epochs(connection, await count_shards(connection))
            async with (
                Wire(settings.redis_url) as wire,
                open_pool(settings.postgres_dsn, name="event", min_size=0, max_size=1) as pool,
            ):
                backend = RedisBackend(wire, shards=epochs.shards, epoch=epochs.redis_epoch)
                yield EventDesk(connection, backend, RowLockBackend(pool, shards=epochs.shards), epochs)
        finally:
            await connection.close()


async def count_shards(connection: Connection) -> int:
    """How many shards Postgres was set up with, so that no setting can disagree."""
    shards = int(await connection.fetchval(query("count_shards")))
    if not shards:
        raise OperatorError("No shards are in service yet: start `holdfast up` or `holdfast keep`.")
    return shards


@contextmanager
def server_errors_explained() -> Iterator[None]:
    """Turn the failures of either server into a sentence."""
    try:
        yield
    except BackendError as error:
        raise OperatorError(f"The server named in {variable('redis_url')} cannot be used: {error}.") from error
    except asyncpg.UndefinedTableError as error:
        raise OperatorError("The database has no Holdfast schema yet: run `holdfast migrate`.") from error
    except POSTGRES_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise OperatorError(f"The server named in {variable('postgres_dsn')} cannot be used: {reason}.") from error


def _refuse_if_over(event: CompiledEvent) -> None:
    if event.document.state in (EventState.CANCELLED, EventState.ARCHIVED):
        raise OperatorError(f"The event {event.event_id} is {event.document.state} and stays so.")


def _expect(status: Status, event: CompiledEvent) -> None:
    if not status.succeeded:
        raise OperatorError(f"Redis refused the event {event.event_id}: {status.name.lower()}.")


def _as_in_redis(event: CompiledEvent, reading: EventReading) -> CompiledEvent:
    """The event in the version and with the capacities that Redis has, which is what a change is made against."""
    if [zone.seats for zone in reading.zones] != [len(zone.document.seats) for zone in event.zones]:
        raise OperatorError(f"The event {event.event_id} has other zones or seats in Redis than in Postgres.")
    zones = tuple(
        msgspec.structs.replace(zone, document=msgspec.structs.replace(zone.document, capacity=counts.capacity))
        for zone, counts in zip(event.zones, reading.zones, strict=True)
    )
    return msgspec.structs.replace(event, version=reading.version, zones=zones)
