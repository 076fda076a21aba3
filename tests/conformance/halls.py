"""One open event on each backend, and what a test may do to it beside calling the backend.

The tests speak engine.backend.Backend only. What a backend keeps, and how its time passes, is in here.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from uuid import UUID, uuid4

import msgspec

from holdfast.engine.backend import Backend, EventReading, Holder, HoldReply
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, compile_event
from holdfast.engine.records import Pair
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.wire import Wire
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.pool import Pool, open_pool
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.sql import query
from holdfast.persistence.verify import CHECKS
from support import scripts
from support.engine import SHARDS, Stage, document, stage
from support.persisting import TABLES
from support.row_locks import serve_from_postgres

FRONT_ENDS = 3


class Hall(Protocol):
    """An event that is open, the backend that serves it, and the same backend as other front ends have it."""

    backend: Backend
    front_ends: list[Backend]
    event: CompiledEvent

    async def contents(self) -> Any:
        """Everything that is kept, in a form that can be compared."""
        ...

    async def check(self) -> None:
        """Fail unless everything that is kept tells the same story."""
        ...

    async def lapse(self, *hold_ids: UUID) -> None:
        """Let the time of holds be over."""
        ...

    async def backdate(self, hold_id: UUID, by_ms: int) -> None:
        """Let a hold have been made so much earlier."""
        ...

    async def take_out_of_service(self) -> None:
        """Let the backend no longer be the one that serves the shards."""
        ...

    async def save(self, event: CompiledEvent) -> None:
        """Whatever has to be done before an event can be opened."""
        ...


# Opens a hall with a document of the test's choice.
OpenHall = Callable[..., AbstractAsyncContextManager[Hall]]


class RedisHall:
    """Scripts on Valkey."""

    def __init__(self, on: Stage, front_ends: list[Backend]) -> None:
        self._on = on
        self.backend: Backend = on.backend
        self.front_ends = front_ends
        self.event = on.event

    async def contents(self) -> Any:
        return await scripts.contents(self._on)

    async def check(self) -> None:
        await scripts.audit(self._on)

    async def lapse(self, *hold_ids: UUID) -> None:
        await self._on.lapse(*hold_ids)

    async def backdate(self, hold_id: UUID, by_ms: int) -> None:
        await scripts.backdate(self._on, hold_id, by_ms)

    async def take_out_of_service(self) -> None:
        await self._on.redis.delete(self._on.keys.key("open"))

    async def save(self, event: CompiledEvent) -> None:
        """Scripts are given all they need when the event opens."""


class RowLockHall:
    """Row locks on Postgres."""

    def __init__(self, pool: Pool, front_ends: list[Backend], event: CompiledEvent) -> None:
        self._pool = pool
        self.backend = front_ends[0]
        self.front_ends = front_ends
        self.event = event

    async def contents(self) -> Any:
        async with self._pool.acquire() as connection:
            found = {
                table: [dict(row) for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY {key}")]  # noqa: S608 - own names
                for table, key in TABLES.items()
            }
            marks = await connection.fetch("SELECT shard, epoch, seq FROM shard_marks ORDER BY shard, epoch")
        return found | {"shard_marks": [dict(row) for row in marks]}

    async def check(self) -> None:
        async with self._pool.acquire() as connection:
            for check in CHECKS:
                assert await connection.fetch(query(check), None) == [], check

    async def lapse(self, *hold_ids: UUID) -> None:
        await self._execute("UPDATE seat_holds SET held_until = '1970-01-01Z' WHERE hold_id = ANY ($1)", hold_ids)
        await self._execute("UPDATE seats SET held_until = '1970-01-01Z' WHERE seat_hold_id = ANY ($1)", hold_ids)

    async def backdate(self, hold_id: UUID, by_ms: int) -> None:
        await self._execute(
            "UPDATE seat_holds SET created_at = created_at - $2 * interval '1 ms' WHERE hold_id = $1", hold_id, by_ms
        )

    async def take_out_of_service(self) -> None:
        async with self._pool.acquire() as connection:
            await serve_from_postgres(connection, mode="recovering")

    async def save(self, event: CompiledEvent) -> None:
        async with self._pool.acquire() as connection:
            await save_event(connection, event, SHARDS)

    async def _execute(self, statement: str, *arguments: object) -> None:
        async with self._pool.acquire() as connection:
            await connection.execute(statement, *arguments)


@asynccontextmanager
async def redis_hall(url: str, doc: EventDocument | None = None) -> AsyncIterator[Hall]:
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(stage(url, doc))
        wires = [await stack.enter_async_context(Wire(url, timeout_s=30)) for _ in range(FRONT_ENDS)]
        front_ends: list[Backend] = [RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH) for wire in wires]
        hall = RedisHall(on, front_ends)
        yield hall
        await hall.check()


@asynccontextmanager
async def row_lock_hall(dsn: str, doc: EventDocument | None = None) -> AsyncIterator[Hall]:
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(open_pool(dsn, name="test", max_size=4)) for _ in range(FRONT_ENDS)]
        front_ends: list[Backend] = [RowLockBackend(pool, shards=SHARDS) for pool in pools]
        event = compile_event(uuid4(), doc or document())
        hall = RowLockHall(pools[0], front_ends, event)
        async with pools[0].acquire() as connection:
            await serve_from_postgres(connection)
        await hall.save(event)
        opened = await hall.backend.open_event(event)
        assert opened.status.succeeded, opened
        yield hall
        await hall.check()


# What tests ask of a hall, whichever it is.


def somebody(user: UUID | None = None, **holder: Any) -> Holder:
    """A holder with a hold id of their own, and a new user unless told otherwise."""
    return Holder(hold_id=holder.pop("hold_id", None) or uuid4(), user_id=user or uuid4(), **holder)


def seats(hall: Hall, *seat_ids: str) -> list[Pair]:
    return [hall.event.seats[each] for each in seat_ids]


async def hold(hall: Hall, *seat_ids: str, places: int = 0, user: UUID | None = None, **holder: Any) -> HoldReply:
    quantities = [(1, places)] if places else []
    who = somebody(user, **holder)
    return await hall.backend.hold_seats(hall.event, who, seats=seats(hall, *seat_ids), quantities=quantities)


async def held(hall: Hall, *seat_ids: str, places: int = 0, user: UUID | None = None, **holder: Any) -> UUID:
    """Hold seats or places, which must succeed; the hold's id."""
    reply = await hold(hall, *seat_ids, places=places, user=user, **holder)
    assert reply.status.name == "DONE", reply
    assert reply.hold_id is not None
    return reply.hold_id


async def change(hall: Hall, **changes: Any) -> None:
    """Change the event's document in service, and use the result from now on."""
    changed = msgspec.structs.replace(hall.event.document, **changes)
    reply, hall.event = await hall.backend.set_event_state(hall.event, changed)
    assert reply.status.name == "DONE", reply


async def reading(hall: Hall) -> EventReading:
    return await hall.backend.read_event(hall.event.organization_id, hall.event.event_id, want_map=True)


async def letters(hall: Hall, *seat_ids: str) -> str:
    """The letters of seats in the map."""
    found = (await reading(hall)).map
    return "".join(chr(found[seat.value]) for seat in seats(hall, *seat_ids))


def shard(hall: Hall) -> int:
    return shard_of(hall.event.event_id, SHARDS)


@asynccontextmanager
async def unchanged(hall: Hall) -> AsyncIterator[None]:
    """Fail if anything that is kept differs after the block."""
    before = await hall.contents()
    yield
    assert await hall.contents() == before
