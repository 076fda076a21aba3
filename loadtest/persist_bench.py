"""What write-behind costs: draining the log against plain INSERTs, and waiting for the commit against not waiting."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from statistics import median, quantiles
from uuid import uuid4

import asyncpg
import msgspec
import uvloop
from redis.asyncio import Redis

from holdfast.engine.acks import Ack, Acks
from holdfast.engine.backend import Holder, Position
from holdfast.engine.durable import DurableBackend
from holdfast.engine.layout import CompiledEvent, compile_event
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.loadtest.script_calls import META, arena, ordinal_of
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.migrate import migrate
from holdfast.persistence.persister import Persister
from holdfast.persistence.pool import Pool, open_pool
from holdfast.persistence.sql import query

SHARDS = 16
CALLERS = 64
LAG_SAMPLE = 20
COPIED_TABLES = ("seat_holds", "audit_log", "outbox")

Report = Callable[[str], None]


class PersistSize(msgspec.Struct, frozen=True):
    """How much the benchmark does."""

    drained: int = 20_000
    acknowledged: int = 8_000
    rounds: int = 3


class PersistFigures(msgspec.Struct, frozen=True):
    """The figures of one run. Rates are per second, times in milliseconds."""

    drained_per_s: float
    inserted_per_s: float
    drain_to_insert: float
    ack_postgres_per_s: float
    ack_redis_per_s: float
    ack_postgres_to_redis: float
    ack_postgres_p50_ms: float
    ack_postgres_p99_ms: float
    ack_redis_p50_ms: float
    ack_redis_p99_ms: float
    lag_p50_ms: float
    lag_p99_ms: float


class AckRun(msgspec.Struct, frozen=True):
    """One round of holds: how many per second, how long each took, and how far the commit was behind."""

    per_s: float
    latencies_ms: tuple[float, ...]
    lags_ms: tuple[float, ...]


def run_persist_bench(
    redis_url: str, postgres_dsn: str, start_keeper: Callable[[], Callable[[], None]], size: PersistSize, report: Report
) -> PersistFigures:
    """Measure on the servers given, which are emptied first. `start_keeper` starts one and returns how to stop it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(redis_url, postgres_dsn, start_keeper, size, report))


async def _run(
    redis_url: str, postgres_dsn: str, start_keeper: Callable[[], Callable[[], None]], size: PersistSize, report: Report
) -> PersistFigures:
    await migrate(postgres_dsn)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(Redis.from_url(redis_url))
        await redis.flushall()
        await open_shards(redis, SHARDS)
        wire = await stack.enter_async_context(Wire(redis_url, timeout_s=30))
        pool = await stack.enter_async_context(
            open_pool(postgres_dsn, name="bench", statement_timeout_ms=None, resets=False)
        )
        await pool.execute(query("open_shards"), list(range(SHARDS)), FIRST_EPOCH)
        backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
        bench = PersistBench(redis, pool, backend, size)
        report(f"draining {size.drained:,} entries against plain inserts of the same rows …")
        drained, inserted = await bench.compare_drain()
        acks = Acks()
        listener = asyncio.create_task(follow_marks(postgres_dsn, acks, SHARDS))
        stop_keeper = start_keeper()
        try:
            report(f"{size.acknowledged:,} holds by {CALLERS} callers, waiting for Postgres and not …")
            durable, fast = await bench.compare_acks(acks)
        finally:
            await asyncio.to_thread(stop_keeper)
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
    slow_rate, fast_rate = median(run.per_s for run in durable), median(run.per_s for run in fast)
    durable_times = quantiles([time for run in durable for time in run.latencies_ms], n=100)
    fast_times = quantiles([time for run in fast for time in run.latencies_ms], n=100)
    lags = quantiles([lag for run in fast for lag in run.lags_ms], n=100)
    return PersistFigures(
        drained_per_s=drained,
        inserted_per_s=inserted,
        drain_to_insert=drained / inserted,
        ack_postgres_per_s=slow_rate,
        ack_redis_per_s=fast_rate,
        ack_postgres_to_redis=slow_rate / fast_rate,
        ack_postgres_p50_ms=durable_times[49],
        ack_postgres_p99_ms=durable_times[98],
        ack_redis_p50_ms=fast_times[49],
        ack_redis_p99_ms=fast_times[98],
        lag_p50_ms=lags[49],
        lag_p99_ms=lags[98],
    )


class PersistBench:
    """The measurements. Each round has an event of its own."""

    def __init__(self, redis: Redis, pool: Pool, backend: RedisBackend, size: PersistSize) -> None:
        self._redis = redis
        self._pool = pool
        self._backend = backend
        self._size = size

    async def compare_drain(self) -> tuple[float, float]:
        """Median rates of draining a log of holds, and of inserting the rows it made by plain batched INSERTs."""
        persister = Persister(
            self._redis,
            self._pool,
            shards=SHARDS,
            compensation=Compensation(lambda _: self._backend, self._pool, self._redis),
        )
        drained, inserted = [], []
        for _ in range(self._size.rounds):
            count = self._size.drained // self._size.rounds
            event = await self._open(count)
            while await persister.step(block_ms=1):
                pass
            await self._hold_all(event, count)
            started = time.perf_counter()
            applied, batches = 0, []
            while applied < count:
                batches.append(await persister.step())
                applied += batches[-1]
            drained.append(count / (time.perf_counter() - started))
            inserted.append(count / await self._insert_again(event, max(batches)))
        return median(drained), median(inserted)

    async def compare_acks(self, acks: Acks) -> tuple[list[AckRun], list[AckRun]]:
        """Rounds of holds that wait for Postgres, and of holds that do not; a keeper persists both."""
        backend = DurableBackend(self._backend, acks, timeout_s=30)
        count = self._size.acknowledged
        await self._holds(backend, acks, await self._open(count), count // 4, Ack.POSTGRES)
        durable, fast = [], []
        for _ in range(self._size.rounds):
            durable.append(await self._holds(backend, acks, await self._open(count), count, Ack.POSTGRES))
            fast.append(await self._holds(backend, acks, await self._open(count), count, Ack.REDIS))
        return durable, fast

    async def _holds(self, backend: DurableBackend, acks: Acks, event: CompiledEvent, count: int, ack: Ack) -> AckRun:
        places = iter(range(count))
        latencies: list[float] = []
        lags: list[asyncio.Task[float]] = []
        last = Position(0, 0, 0)

        async def caller() -> None:
            nonlocal last
            for place in places:
                holder = Holder(hold_id=uuid4(), user_id=uuid4(), meta=META)
                asked = time.perf_counter()
                reply = await backend.hold_seats(event, holder, seats=[(0, ordinal_of(place))], ack=ack)
                latencies.append((time.perf_counter() - asked) * 1000)
                if reply.status is not Status.DONE:
                    raise RuntimeError(f"a call of the benchmark was refused: {reply.status.name}")
                last = max(last, reply.position)
                if place % LAG_SAMPLE == 0:
                    lags.append(asyncio.create_task(_lag_ms(acks, reply.position)))

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        per_s = count / (time.perf_counter() - started)
        measured = await asyncio.gather(*lags)
        # The next round begins with an empty log, or it would pay for this one.
        await acks.wait(last, timeout_s=60)
        return AckRun(per_s, tuple(latencies), tuple(measured))

    async def _hold_all(self, event: CompiledEvent, count: int) -> None:
        places = iter(range(count))

        async def caller() -> None:
            for place in places:
                holder = Holder(hold_id=uuid4(), user_id=uuid4(), meta=META)
                await self._backend.hold_seats(event, holder, seats=[(0, ordinal_of(place))])

        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    async def _insert_again(self, event: CompiledEvent, batch: int) -> float:
        """Seconds to insert the rows that draining made once more, into the same tables, in batches of the same size.

        They are read and deleted first, so that indexes, constraints and sizes are the same. Each batch is a
        transaction of its own, as a drained one is.
        """
        async with self._pool.acquire() as connection:
            again = {}
            for table in COPIED_TABLES:
                names = await _columns(connection, table)
                rows = await connection.fetch(
                    f"DELETE FROM {table} WHERE event_id = $1 RETURNING {', '.join(names)}",  # noqa: S608 - own names
                    event.event_id,
                )
                values = ", ".join(f"${place}" for place in range(1, len(names) + 1))
                insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"  # noqa: S608
                again[insert] = [tuple(row) for row in rows]
            started = time.perf_counter()
            for first in range(0, len(event.seats), batch):
                async with connection.transaction():
                    for insert, rows in again.items():
                        await connection.executemany(insert, rows[first : first + batch])
            return time.perf_counter() - started

    async def _open(self, seats: int) -> CompiledEvent:
        event = compile_event(uuid4(), arena(seats))
        async with self._pool.acquire() as connection:
            await save_event(connection, event, SHARDS)
        reply = await self._backend.open_event(event)
        if not reply.status.succeeded:
            raise RuntimeError(f"the benchmark's event did not open: {reply.status.name}")
        return event


async def _columns(connection: asyncpg.Connection, table: str) -> list[str]:
    """The columns that may be inserted: all but the identity."""
    rows = await connection.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND table_schema = 'public' "
        "AND is_identity = 'NO' ORDER BY ordinal_position",
        table,
    )
    return [row["column_name"] for row in rows]


async def _lag_ms(acks: Acks, position: Position) -> float:
    answered = time.perf_counter()
    await acks.wait(position, timeout_s=60)
    return (time.perf_counter() - answered) * 1000
