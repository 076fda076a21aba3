"""An event in Redis and in Postgres, and a persister between the two that moves when told to."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
from redis.asyncio import Redis

from holdfast.engine.acks import Acks
from holdfast.engine.audit import Caller
from holdfast.engine.keys import ShardKeys, shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, compile_event
from holdfast.engine.settings import Settings
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.persistence.apply import Rejection, apply_operations
from holdfast.persistence.batches import gather
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.operations import Operation
from holdfast.persistence.persister import Persister
from holdfast.persistence.pool import Pool, open_pool
from holdfast.persistence.service import open_servers
from holdfast.persistence.sql import query
from support.engine import SHARDS, Stage, document, stage

DEADLINE_SECONDS = 20.0
CALLER = Caller(address="192.0.2.7", user_agent="browser/1.0", request_id="request-1")

# Everything that a hold leaves behind, in an order that does not depend on when it was written.
TABLES = {
    "seat_holds": "hold_id, line",
    "seats": "event_id, ordinal",
    "zones": "event_id, zone",
    "tickets": "id",
    "checkouts": "event_id, id",
    "audit_log": "id",
    "outbox": "id",
    "events": "id",
}


class Rig:
    """A stage with its event in Postgres too. What the stage decides is applied when a test says so."""

    def __init__(self, on: Stage, pool: Pool, dsn: str) -> None:
        self.on = on
        self.pool = pool
        self.dsn = dsn

    @property
    def event(self) -> CompiledEvent:
        return self.on.event

    @property
    def redis(self) -> Redis:
        return self.on.redis

    @property
    def shard(self) -> int:
        return self.on.keys.shard.shard

    def persister(self, **options: Any) -> Persister:
        compensation = Compensation(lambda _: self.on.backend, self.pool, self.redis)
        return Persister(self.redis, self.pool, shards=SHARDS, compensation=compensation, **options)

    async def drain(self, persister: Persister | None = None) -> int:
        """Persist everything that waits; returns how many entries that were."""
        persister = persister or self.persister()
        total = 0
        while applied := await persister.step(block_ms=1):
            total += applied
        return total

    async def open_other(self, *, same_shard: bool, doc: EventDocument | None = None) -> CompiledEvent:
        """Open another event, in the first one's shard or in another."""
        while True:
            event = compile_event(uuid4(), msgspec.structs.replace(doc or document(), event_id=uuid4()))
            if (shard_of(event.event_id, SHARDS) == self.shard) is same_shard:
                break
        await self.save(event)
        opened = await self.on.backend.open_event(event)
        assert opened.status.succeeded, opened
        return event

    async def save(self, event: CompiledEvent) -> None:
        async with self.pool.acquire() as connection:
            await save_event(connection, event, SHARDS)

    async def operations(self, after: int = 0, *, event: CompiledEvent | None = None) -> list[Operation]:
        """What the log of an event's shard has after a number."""
        keys = log_keys(event or self.event)
        entries: Any = await self.redis.xrange(keys.key("log"), min=f"({FIRST_EPOCH}-{after}")
        found = gather(keys.shard, FIRST_EPOCH, after, entries)
        assert not found.gap
        assert not found.dead_letters
        return list(found.operations)

    async def apply(self, operations: list[Operation]) -> list[Rejection]:
        async with self.pool.acquire() as connection, connection.transaction():
            return await apply_operations(connection, operations)

    async def fetch(self, statement: str, *arguments: object) -> list[dict[str, Any]]:
        async with self.pool.acquire() as connection:
            return [dict(row) for row in await connection.fetch(statement, *arguments)]

    async def value(self, statement: str, *arguments: object) -> Any:
        async with self.pool.acquire() as connection:
            return await connection.fetchval(statement, *arguments)

    async def execute(self, statement: str, *arguments: object) -> None:
        async with self.pool.acquire() as connection:
            await connection.execute(statement, *arguments)

    async def contents(self) -> dict[str, list[dict[str, Any]]]:
        """Every row that the log leads to."""
        return {table: await self.fetch(f"SELECT * FROM {table} ORDER BY {key}") for table, key in TABLES.items()}  # noqa: S608

    async def hold_rows(self, hold_id: UUID) -> list[dict[str, Any]]:
        return await self.fetch("SELECT * FROM seat_holds WHERE hold_id = $1 ORDER BY line", hold_id)

    async def seat(self, seat_id: str) -> dict[str, Any]:
        (row,) = await self.fetch(
            "SELECT * FROM seats WHERE event_id = $1 AND seat_id = $2", self.event.event_id, seat_id
        )
        return row

    async def zone(self, zone: int) -> dict[str, Any]:
        (row,) = await self.fetch(
            "SELECT capacity, held, sold, blocked FROM zones WHERE event_id = $1 AND zone = $2",
            self.event.event_id,
            zone,
        )
        return row

    async def audit(self, action: str) -> list[dict[str, Any]]:
        rows = await self.fetch("SELECT * FROM audit_log WHERE action = $1 ORDER BY id", action)
        return [{**row, "changes": msgspec.json.decode(row["changes"])} for row in rows]

    async def outbox(self, kind: str) -> list[dict[str, Any]]:
        rows = await self.fetch("SELECT * FROM outbox WHERE kind = $1 ORDER BY id", kind)
        return [{**row, "payload": msgspec.json.decode(row["payload"])} for row in rows]

    async def marks(self) -> dict[int, int]:
        return {row["shard"]: row["seq"] for row in await self.fetch("SELECT shard, seq FROM shard_marks")}

    async def lapse(self, *hold_ids: UUID) -> None:
        """Let the time of holds be over, by the clocks of both servers."""
        await self.on.lapse(*hold_ids)
        await self.execute(
            "UPDATE seat_holds SET held_until = now() - interval '1 second' WHERE hold_id = ANY ($1::uuid[])",
            list(hold_ids),
        )


def log_keys(event: CompiledEvent) -> ShardKeys:
    return ShardKeys(shard_of(event.event_id, SHARDS), FIRST_EPOCH)


async def append(rig: Rig, fields: dict[bytes, bytes], event: CompiledEvent | None = None) -> int:
    """Write an entry to the log as a script would, whatever is in it; its number."""
    keys = log_keys(event or rig.event)
    number = int(await rig.redis.incr(keys.key("seq")))
    entry: Any = fields
    await rig.redis.xadd(keys.key("log"), entry, id=f"{FIRST_EPOCH}-{number}")
    return number


async def damage_last_entry(rig: Rig) -> None:
    """Make the body of the log's last entry unreadable, leaving what else it says."""
    log = log_keys(rig.event).key("log")
    *whole, (name, fields) = await rig.redis.xrange(log)
    await rig.redis.delete(log)
    for number, content in (*whole, (name, {**fields, b"body": b"?"})):
        await rig.redis.xadd(log, content, id=number)


@asynccontextmanager
async def rigged(redis_url: str, dsn: str, doc: EventDocument | None = None, **backend: Any) -> AsyncIterator[Rig]:
    """The usual event on both servers, and nothing persisted yet."""
    async with stage(redis_url, doc, **backend) as on, open_pool(dsn, name="test") as pool:
        rig = Rig(on, pool, dsn)
        await rig.execute(query("open_shards"), list(range(SHARDS)), FIRST_EPOCH)
        await rig.save(on.event)
        yield rig


@asynccontextmanager
async def running(*jobs: Awaitable[None]) -> AsyncIterator[None]:
    """Run jobs beside the block; one that fails fails the test."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        yield
        for task in tasks:
            if task.done():
                await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def persisted(redis_url: str, dsn: str) -> Iterator[None]:
    """A persister in a thread of its own, for tests that run commands and wait for them."""
    settings = Settings(redis_url=redis_url, postgres_dsn=dsn, shards=SHARDS)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def persist() -> None:
        stop = asyncio.Event()
        async with open_servers(settings, "test") as servers:
            persister = Persister(servers.redis, servers.pool, shards=SHARDS, compensation=None)
            async with running(persister.run()):
                begun.set_result((asyncio.get_running_loop(), stop))
                await stop.wait()

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(asyncio.run, persist())
        loop, stop = begun.result(DEADLINE_SECONDS)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            ended.result(DEADLINE_SECONDS)


@asynccontextmanager
async def following(dsn: str) -> AsyncIterator[Acks]:
    """Acknowledgements that hear what is committed."""
    acks = Acks()
    async with running(follow_marks(dsn, acks, SHARDS)):
        await eventually(lambda: is_listening(dsn), "somebody listens for marks")
        yield acks


async def is_listening(dsn: str) -> bool:
    return await listener_pid(dsn) is not None


async def listener_pid(dsn: str) -> int | None:
    """The backend that serves the connection on which marks are heard, once it listens."""
    connection = await asyncpg.connect(dsn)
    try:
        pid: int | None = await connection.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'holdfast marks' AND state = 'idle' AND query LIKE '%FROM control c%'"
        )
        return pid
    finally:
        await connection.close()


async def eventually(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Poll until the condition is truthy, and return its value."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS:.0f} s: {what}"
        await asyncio.sleep(0.01)
    return value
