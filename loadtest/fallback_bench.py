"""What the fallback costs: holds under Postgres's row locks against holds in Redis, both answered after the commit."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from statistics import median, quantiles
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import uvloop
from redis.asyncio import Redis

from holdfast.engine.acks import Acks
from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.durable import DurableBackend
from holdfast.engine.layout import CompiledEvent, compile_event
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.loadtest.script_calls import META, arena, ordinal_of
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.migrate import migrate
from holdfast.persistence.pool import Pool, connect, open_pool
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.sql import query

SHARDS = 16
CALLERS = 64

# Row locks have a database of their own on the same server, where no keeper thinks of going back to Redis.
DATABASE = "holdfast_fallback"
DB_EPOCH = 1

Report = Callable[[str], None]
Ask = Callable[[Holder, int], Awaitable[HoldReply]]


class FallbackSize(msgspec.Struct, frozen=True):
    """How much the benchmark does in each round."""

    holds: int = 4_000
    refusals: int = 8_000
    alone: int = 300
    rounds: int = 3


class FallbackFigures(msgspec.Struct, frozen=True):
    """The figures of one run, medians of its rounds. Rates are per second, times in milliseconds."""

    row_locks_per_s: float
    redis_per_s: float
    row_locks_to_redis: float
    row_locks_p50_ms: float
    row_locks_p99_ms: float
    redis_p50_ms: float
    redis_p99_ms: float
    row_locks_hot_seat_per_s: float
    redis_hot_seat_per_s: float
    row_locks_hot_seat_to_redis: float
    row_locks_alone_per_s: float
    row_locks_alone_p50_ms: float


class Round(msgspec.Struct, frozen=True):
    """How many answers came per second, and how long each took."""

    per_s: float
    latencies_ms: tuple[float, ...]


def run_fallback_bench(
    redis_url: str,
    postgres_dsn: str,
    start_keeper: Callable[[], Callable[[], None]],
    size: FallbackSize,
    report: Report,
) -> FallbackFigures:
    """Measure on the servers given, which are emptied first. `start_keeper` starts one and returns how to stop it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(redis_url, postgres_dsn, start_keeper, size, report))


async def _run(
    redis_url: str,
    postgres_dsn: str,
    start_keeper: Callable[[], Callable[[], None]],
    size: FallbackSize,
    report: Report,
) -> FallbackFigures:
    await migrate(postgres_dsn)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(Redis.from_url(redis_url))
        await redis.flushall()
        await open_shards(redis, SHARDS)
        wire = await stack.enter_async_context(Wire(redis_url, timeout_s=30))
        beside = await stack.enter_async_context(open_pool(postgres_dsn, name="bench"))
        await beside.execute(query("open_shards"), list(range(SHARDS)), FIRST_EPOCH)
        pool = await stack.enter_async_context(open_pool(await _fallback_database(postgres_dsn), name="bench fallback"))
        async with pool.acquire() as connection:
            await connection.execute(query("serve_shards_here"), list(range(SHARDS)), DB_EPOCH)
        acks = Acks()
        listener = asyncio.create_task(follow_marks(postgres_dsn, acks, SHARDS))
        stop_keeper = await asyncio.to_thread(start_keeper)
        try:
            backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
            durable = DurableBackend(backend, acks, timeout_s=30)
            bench = FallbackBench((pool, RowLockBackend(pool, shards=SHARDS)), (beside, backend), durable)
            return await bench.run(size, report)
        finally:
            await asyncio.to_thread(stop_keeper)
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)


class FallbackBench:
    """The measurements. Each round has events of its own, one on either side."""

    def __init__(
        self, here: tuple[Pool, RowLockBackend], there: tuple[Pool, RedisBackend], durable: DurableBackend
    ) -> None:
        self._here = here
        self._there = there
        self._durable = durable

    async def run(self, size: FallbackSize, report: Report) -> FallbackFigures:
        await self._distinct(size.holds // 4)
        distinct, hot, alone = [], [], []
        for number in range(1, size.rounds + 1):
            report(f"round {number}: {size.holds:,} holds of as many seats by {CALLERS} callers, on either side …")
            distinct.append(await self._distinct(size.holds))
            report(f"round {number}: {size.refusals:,} requests for one seat …")
            hot.append(await self._hot(size.refusals))
            alone.append(await self._alone(size.alone))
        here, there = _latencies(each[0] for each in distinct), _latencies(each[1] for each in distinct)
        row_locks, redis = _rate(each[0] for each in distinct), _rate(each[1] for each in distinct)
        hot_row_locks, hot_redis = _rate(each[0] for each in hot), _rate(each[1] for each in hot)
        return FallbackFigures(
            row_locks_per_s=row_locks,
            redis_per_s=redis,
            row_locks_to_redis=row_locks / redis,
            row_locks_p50_ms=here[49],
            row_locks_p99_ms=here[98],
            redis_p50_ms=there[49],
            redis_p99_ms=there[98],
            row_locks_hot_seat_per_s=hot_row_locks,
            redis_hot_seat_per_s=hot_redis,
            row_locks_hot_seat_to_redis=hot_row_locks / hot_redis,
            row_locks_alone_per_s=_rate(alone),
            row_locks_alone_p50_ms=_latencies(alone)[49],
        )

    async def _distinct(self, count: int) -> tuple[Round, Round]:
        """Every request for a seat of its own."""
        here, there = await self._events(count)
        row_locks = await _ask(self._on_row_locks(here), range(count), CALLERS, {Status.DONE})
        return row_locks, await _ask(self._in_redis(there), range(count), CALLERS, {Status.DONE})

    async def _hot(self, count: int) -> tuple[Round, Round]:
        """Every request for the same seat: one is granted, and the others are to be told as soon as may be."""
        here, there = await self._events(1)
        outcomes = {Status.DONE, Status.SEAT_HELD_BY_ANOTHER_USER}
        row_locks = await _ask(self._on_row_locks(here), [0] * count, CALLERS, outcomes)
        return row_locks, await _ask(self._in_redis(there), [0] * count, CALLERS, outcomes)

    async def _alone(self, count: int) -> Round:
        """One caller after the other, each a transaction of its own."""
        here, _ = await self._events(count)
        return await _ask(self._on_row_locks(here), range(count), 1, {Status.DONE})

    async def _events(self, seats: int) -> tuple[CompiledEvent, CompiledEvent]:
        """An event that Postgres serves, and one that Redis does."""
        here, there = compile_event(uuid4(), arena(seats)), compile_event(uuid4(), arena(seats))
        for (pool, backend), event in ((self._here, here), (self._there, there)):
            async with pool.acquire() as connection:
                await save_event(connection, event, SHARDS)
            reply = await backend.open_event(event)
            if not reply.status.succeeded:
                raise RuntimeError(f"the benchmark's event did not open: {reply.status.name}")
        return here, there

    def _on_row_locks(self, event: CompiledEvent) -> Ask:
        return lambda holder, place: self._here[1].hold_seats(event, holder, seats=[(0, ordinal_of(place))])

    def _in_redis(self, event: CompiledEvent) -> Ask:
        return lambda holder, place: self._durable.hold_seats(event, holder, seats=[(0, ordinal_of(place))])


async def _fallback_database(postgres_dsn: str) -> str:
    """Make the database of the row locks; how to reach it."""
    connection = await connect(postgres_dsn, name="bench", statement_timeout_ms=None)
    try:
        await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()
    dsn = urlsplit(postgres_dsn)._replace(path=f"/{DATABASE}").geturl()
    await migrate(dsn)
    return dsn


async def _ask(ask: Ask, wanted: range | list[int], callers: int, expected: set[Status]) -> Round:
    places = iter(wanted)
    latencies: list[float] = []

    async def caller() -> None:
        for place in places:
            asked = time.perf_counter()
            reply = await ask(Holder(hold_id=uuid4(), user_id=uuid4(), meta=META), place)
            latencies.append((time.perf_counter() - asked) * 1000)
            if reply.status not in expected:
                raise RuntimeError(f"a call of the benchmark was answered with {reply.status.name}")

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return Round(len(wanted) / (time.perf_counter() - started), tuple(latencies))


def _rate(rounds: Iterable[Round]) -> float:
    return median(each.per_s for each in rounds)


def _latencies(rounds: Iterable[Round]) -> list[float]:
    return quantiles([latency for each in rounds for latency in each.latencies_ms], n=100)
