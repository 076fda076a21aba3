"""What the scripts cost: server time per call, memory per hold, the reaper's longest call, the wire's throughput.

Server times come from the server's own statistics (`INFO commandstats`), so neither the client nor the network is in
them. Whatever is compared is measured alternately in the same run, and ratios are of medians: this is how figures
from a noisy machine can be trusted.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID, uuid4

import msgspec
import redis
import redis.asyncio
import uvloop

from holdfast.engine.backend import Holder
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory, compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.reaper import REAP_BATCH
from holdfast.engine.records import pack_pairs, pack_zone
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.loadtest.script_calls import (
    ALL_RULES,
    META,
    POLICY,
    RETENTION_MS,
    SEATS_PER_ROW,
    SHARDS,
    Words,
    allocate_calls,
    arena,
    event_arguments,
    event_keys,
    group_calls,
    hold_arguments,
    hold_calls,
    mixed_arena,
    ordinal_of,
    ready_calls,
    words,
    write_calls,
)
from holdfast.lua import SCRIPTS, bundle, scripts

CALLERS = 64
GROUPS = (1, 2, 4, 8)
SOLD_PERCENT = (0, 50, 95)
# A category, and how many seats of it.
Wanted = tuple[SeatCategory, int]
OF_CATEGORY: tuple[Wanted, ...] = (
    (SeatCategory.AISLE, 1),
    (SeatCategory.AISLE, 2),
    (SeatCategory.STANDARD, 2),
    (SeatCategory.STANDARD, 8),
    (SeatCategory.RESTRICTED_VIEW, 1),
    (SeatCategory.RESTRICTED_VIEW, 4),
)
CLIENT_ROUNDS = 9
PIPELINE = 500
BASELINES = Path(__file__).resolve().parent / "baselines"

Report = Callable[[str], None]
HoldSeat = Callable[[int], Awaitable[int]]


class Size(msgspec.Struct, frozen=True):
    """How much the benchmark does. The acceptance figures are those of the full size."""

    seats: int = 100_000
    small_seats: int = 1_000
    rounds: int = 20
    calls: int = 500
    wire_calls: int = 40_000


class ScriptFigures(msgspec.Struct, frozen=True):
    """The figures of one run. Times are server microseconds per call."""

    hold_us: float
    writes_us: float
    ready_writes_us: float
    hold_to_writes: float
    hold_to_ready_writes: float
    hold_small_us: float
    hold_large_us: float
    growth: float
    allocate_empty_us: float
    allocate_sold_in_order_us: float
    allocate_sold_scattered_us: float
    allocate_after_release_us: float
    allocate_unsearched_us: float
    allocate_nothing_known_us: float
    allocate_empty_to_hold: float
    allocate_95_sold_to_hold: float
    allocate_after_release_to_hold: float
    allocate_unsearched_to_hold: float
    allocate_nothing_known_to_hold: float
    allocate_with_all_rules_to_hold: dict[str, float]
    allocate_of_category_to_hold: dict[str, float]
    live_holds: int
    bytes_per_live_hold: float
    reaped_holds: int
    longest_reap_ms: float
    wire_calls_per_s: float
    redis_py_calls_per_s: float
    wire_to_redis_py: float
    wire_refusals_per_s: float
    redis_py_refusals_per_s: float
    wire_to_redis_py_refusals: float


def run_script_bench(url: str, size: Size, report: Report) -> ScriptFigures:
    """Measure everything on the server given, which is emptied first."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(url, size, report))


async def _run(url: str, size: Size, report: Report) -> ScriptFigures:
    server = redis.Redis.from_url(url)
    driver: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url)
    try:
        server.flushall()
        await open_shards(driver, SHARDS)
        async with Wire(url, timeout_s=30) as wire:
            bench = Bench(server, RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH, retention_ms=RETENTION_MS), size)
            report("holds against the same writes …")
            hold, writes, ready = await bench.compare_with_writes()
            report(f"{size.seats:,} live holds: memory and growth …")
            large, bytes_per_hold = await bench.fill()
            small_us, large_us = await bench.compare_sizes(large)
            report("best available …")
            plain, empty, in_order, scattered, released, unsearched, unknown = await bench.compare_allocations()
            report("best available with all rules …")
            with_rules = await bench.compare_choices()
            report("best available of a category …")
            of_category = await bench.compare_categories()
            report(f"{size.seats:,} holds expire at once …")
            reaped, longest_us = bench.reap(large)
            report(f"wire against redis-py, {CALLERS} callers …")
            refusals, plain_refusals, holds, plain_holds = await bench.compare_clients(driver)
    finally:
        server.close()
        await driver.aclose()
    return ScriptFigures(
        hold_us=hold,
        writes_us=writes,
        ready_writes_us=ready,
        hold_to_writes=hold / writes,
        hold_to_ready_writes=hold / ready,
        hold_small_us=small_us,
        hold_large_us=large_us,
        growth=large_us / small_us,
        allocate_empty_us=empty,
        allocate_sold_in_order_us=in_order,
        allocate_sold_scattered_us=scattered,
        allocate_after_release_us=released,
        allocate_unsearched_us=unsearched,
        allocate_nothing_known_us=unknown,
        allocate_empty_to_hold=empty / plain,
        allocate_95_sold_to_hold=max(in_order, scattered) / plain,
        allocate_after_release_to_hold=released / plain,
        allocate_unsearched_to_hold=unsearched / plain,
        allocate_nothing_known_to_hold=unknown / plain,
        allocate_with_all_rules_to_hold=with_rules,
        allocate_of_category_to_hold=of_category,
        live_holds=size.seats,
        bytes_per_live_hold=bytes_per_hold,
        reaped_holds=reaped,
        longest_reap_ms=longest_us / 1000,
        wire_calls_per_s=holds,
        redis_py_calls_per_s=plain_holds,
        wire_to_redis_py=holds / plain_holds,
        wire_refusals_per_s=refusals,
        redis_py_refusals_per_s=plain_refusals,
        wire_to_redis_py_refusals=refusals / plain_refusals,
    )


class Bench:
    """The measurements, each on events of its own."""

    def __init__(self, server: redis.Redis, backend: RedisBackend, size: Size) -> None:
        # redis-py leaves execute_command, by which whole calls are sent, without annotations.
        self._server: Any = server
        self._backend = backend
        self._size = size
        includes = SCRIPTS / "include"
        self._writes = bundle(BASELINES / "write_hold.lua", includes)
        self._ready = bundle(BASELINES / "write_ready_hold.lua", includes)
        for script in (self._writes, self._ready):
            server.script_load(script.source)

    async def compare_with_writes(self) -> tuple[float, float, float]:
        """Median cost of a hold, of a script that only performs its writes, and of bare writes of ready values."""
        size = self._size
        names = ("hold", "writes", "ready")
        events = {name: await self._open(size.rounds * size.calls) for name in names}
        # The baselines number their log entries themselves, so each needs a log of its own.
        calls = {
            "hold": hold_calls(events["hold"]),
            "writes": write_calls(self._writes, events["writes"], epoch=2),
            "ready": ready_calls(self._ready, events["ready"], epoch=3),
        }
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(size.rounds):
            for name in names:
                times[name].append(self._time(calls[name], size.calls))
        return median(times["hold"]), median(times["writes"]), median(times["ready"])

    async def fill(self) -> tuple[CompiledEvent, float]:
        """An event with as many live holds as the size says and some free seats, and the bytes each hold takes."""
        size = self._size
        event = await self._open(size.seats + size.rounds * size.calls)
        before = self._server.info("memory")["used_memory"]
        self._time(hold_calls(event), size.seats)
        after = self._server.info("memory")["used_memory"]
        return event, (after - before) / size.seats

    async def compare_sizes(self, large: CompiledEvent) -> tuple[float, float]:
        """Median cost of a hold in a small event, and in the large one with all its live holds."""
        size = self._size
        large_calls = hold_calls(large, first=size.seats)
        small_times, large_times = [], []
        for _ in range(size.rounds):
            small_calls = hold_calls(await self._open(size.small_seats))
            small_times.append(self._time(small_calls, min(size.calls, size.small_seats)))
            large_times.append(self._time(large_calls, size.calls))
        return median(small_times), median(large_times)

    async def compare_allocations(self) -> tuple[float, float, float, float, float, float, float]:
        """Median cost of a plain hold, and of four seats together in six cases.

        The event is empty; it sold from the best seat on; single seats are left all over the house (in both of these
        only the far end has four together). Then, in the last of these events, after four seats have come free in the
        sold part: the dearer of the search that finds them and of the one that has to look further. Then the first
        search of an event of which the same seats were taken by name; and one that knows nothing of any block.
        """
        size = self._size
        calls = max(20, size.calls // 10)
        plain = hold_calls(await self._open(size.rounds * calls))
        kinds = ("empty", "in_order", "scattered")
        events = {kind: await self._open(size.seats) for kind in kinds}
        # Rows that stay free at the far end, enough for every allocation of the measurement.
        far_end = len(events["empty"].map) - ordinal_of((size.rounds + 4) * calls * 5)
        returning = self._hold_fours(events["scattered"], calls, far_end)
        self._sell(events["in_order"], lambda ordinal: ordinal < far_end)
        luck = random.Random(1)  # noqa: S311 - a figure must be repeatable, not secret
        scatter = [ordinal % 2 == 1 or luck.random() < 0.9 for ordinal in range(far_end)]
        self._sell(events["scattered"], lambda ordinal: ordinal < far_end and scatter[ordinal])
        allocations = {kind: allocate_calls(event) for kind, event in events.items()}
        plain_times: list[float] = []
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(size.rounds):
            plain_times.append(self._time(plain, calls))
            for kind in kinds:
                times[kind].append(self._time(allocations[kind], calls))
        empty, in_order, scattered = (median(times[kind]) for kind in kinds)
        found, further = [], []
        for hold_id in returning:
            await self._backend.release_holds(
                events["scattered"], [hold_id], user_id=None, reason="user_cancelled", meta=META
            )
            found.append(self._time(allocations["scattered"], 1))
            further.append(self._time(allocations["scattered"], 1))
        released = max(median(found), median(further))
        by_name = await self._open(size.seats)
        self._hold_by_name(by_name, [ordinal for ordinal, taken in enumerate(scatter) if taken])
        unsearched = self._first_searches(by_name, calls)
        self._server.hdel(event_keys(by_name).key("counts"), "runs")
        unknown = self._first_searches(by_name, calls)
        return median(plain_times), empty, in_order, scattered, released, unsearched, unknown

    async def compare_choices(self) -> dict[str, float]:
        """Median costs of best available with all rules on, as multiples of a plain hold: by seats and percent sold.

        What is sold is the better part of the house, where some single seats are left as in `scattered` above. The
        best single seat is therefore one of those, and others are found behind all of them.
        """
        size = self._size
        found: dict[str, float] = {}
        calls = max(1, size.seats // 25 // sum(GROUPS) // size.rounds)
        plain = hold_calls(await self._open(size.rounds * calls * len(SOLD_PERCENT)))
        for percent in SOLD_PERCENT:
            event = await self._open(size.seats, ALL_RULES)
            self._sell_better_part(event, percent)
            allocations = {seats: allocate_calls(event, seats) for seats in GROUPS}
            plain_times: list[float] = []
            times: dict[int, list[float]] = {seats: [] for seats in GROUPS}
            for _ in range(size.rounds):
                plain_times.append(self._time(plain, calls))
                for seats in GROUPS:
                    times[seats].append(self._time(allocations[seats], calls))
            found |= {f"{seats}_at_{percent}": median(times[seats]) / median(plain_times) for seats in GROUPS}
        return found

    async def compare_categories(self) -> dict[str, float]:
        """The same for requests that take seats of one category only: by category, seats and percent sold.

        `gone` is the refusal where every seat of the category is taken and nothing else is.
        """
        size = self._size
        found: dict[str, float] = {}
        calls = 2 if size.seats >= 50_000 else 1
        plain = hold_calls(await self._open(size.rounds * calls * (len(SOLD_PERCENT) + 3)))
        for percent in SOLD_PERCENT:
            event = await self._open_mixed()
            self._sell_better_part(event, percent)
            allocations = {wish: allocate_calls(event, wish[1], wish[0]) for wish in OF_CATEGORY}
            plain_us, times = self._alternate(plain, allocations, calls)
            found |= {f"{kind}_{seats}_at_{percent}": times[kind, seats] / plain_us for kind, seats in allocations}
        for kind, seats in OF_CATEGORY[:3]:
            event = await self._open_mixed()
            gone = {ordinal for ordinal, seat in event.seat_at.items() if seat.category is kind}
            self._sell(event, gone.__contains__)
            refusals = {(kind, seats): allocate_calls(event, seats, kind)}
            plain_us, times = self._alternate(plain, refusals, 1, Status.NO_AVAILABLE_SEATS)
            found[f"{kind}_{seats}_gone"] = times[kind, seats] / plain_us
        return found

    def _alternate(
        self, plain: Iterator[Words], calls: Mapping[Wanted, Iterator[Words]], count: int, outcome: Status = Status.DONE
    ) -> tuple[float, dict[Wanted, float]]:
        """Median costs of a plain hold and of some other calls, so many of each in every round."""
        plain_times: list[float] = []
        times: dict[Wanted, list[float]] = {wanted: [] for wanted in calls}
        for _ in range(self._size.rounds):
            plain_times.append(self._time(plain, count))
            for wanted in calls:
                times[wanted].append(self._time(calls[wanted], count, outcome))
        return median(plain_times), {wanted: median(found) for wanted, found in times.items()}

    def _first_searches(self, event: CompiledEvent, count: int) -> float:
        """Median cost of a search for four seats that knows what is known now, however often it is made."""
        counts, allocations, times = event_keys(event).key("counts"), allocate_calls(event), []
        known = self._server.hget(counts, "runs")
        for _ in range(count):
            times.append(self._time(allocations, 1))
            if known is None:
                self._server.hdel(counts, "runs")
            else:
                self._server.hset(counts, "runs", known)
        return median(times)

    def reap(self, event: CompiledEvent) -> tuple[int, float]:
        """Let every hold of the event end at once and reap them: how many, and the longest call in microseconds."""
        keys = event_keys(event)
        ids = self._server.zrange(keys.key("expiry"), 0, -1)
        for at in range(0, len(ids), 10_000):
            self._server.zadd(keys.key("expiry"), dict.fromkeys(ids[at : at + 10_000], 1))
        self._server.config_set("slowlog-max-len", len(ids) // REAP_BATCH + 100)
        self._server.config_set("slowlog-log-slower-than", 0)
        self._server.slowlog_reset()
        script, reaped, batch = scripts()["expire_holds"], 0, REAP_BATCH
        while batch:
            call = words(script, keys, scope=keys.scope, meta=b"", retention_ms=RETENTION_MS, limit=REAP_BATCH)
            _, _, _, batch, _ = self._server.execute_command(*call)
            reaped += batch
        self._server.config_set("slowlog-log-slower-than", 10_000)
        calls = self._server.slowlog_get(len(ids) // REAP_BATCH + 100)
        return reaped, max(call["duration"] for call in calls if call["command"].startswith(b"EVALSHA"))

    async def compare_clients(self, plain: redis.asyncio.Redis) -> tuple[float, float, float, float]:
        """Calls per second of concurrent callers, through the wire and by a plain redis-py EVALSHA.

        First of holds that are refused because the seat is taken, where the client is what limits; then of holds that
        succeed, where the server is.
        """
        calls = self._size.wire_calls // CLIENT_ROUNDS
        rates: list[list[float]] = [[], [], [], []]
        for _ in range(CLIENT_ROUNDS):
            hot = await self._open(1)
            await self._by_backend(hot)(0)
            taken = Status.SEAT_HELD_BY_ANOTHER_USER
            rates[0].append(await _throughput(self._by_backend(hot), calls, lambda _: 0, taken))
            rates[1].append(await _throughput(_by_evalsha(plain, hot), calls, lambda _: 0, taken))
            rates[2].append(await _throughput(self._by_backend(await self._open(calls)), calls, ordinal_of))
            rates[3].append(await _throughput(_by_evalsha(plain, await self._open(calls)), calls, ordinal_of))
        refusals, plain_refusals, holds, plain_holds = map(median, rates)
        return refusals, plain_refusals, holds, plain_holds

    def _by_backend(self, event: CompiledEvent) -> HoldSeat:
        async def hold(ordinal: int) -> int:
            holder = Holder(hold_id=uuid4(), user_id=uuid4(), meta=META)
            return (await self._backend.hold_seats(event, holder, seats=[(0, ordinal)])).status

        return hold

    async def _open(self, seats: int, policy: Policy = POLICY) -> CompiledEvent:
        return await self._open_document(arena(seats, policy))

    async def _open_document(self, document: EventDocument) -> CompiledEvent:
        event = compile_event(uuid4(), document)
        reply = await self._backend.open_event(event)
        if not reply.status.succeeded:
            raise RuntimeError(f"the benchmark's event did not open: {reply.status.name}")
        return event

    def _time(self, calls: Iterator[Words], count: int, outcome: Status = Status.DONE) -> float:
        """Server microseconds per call of the next `count` calls, which must all end like this."""
        spent = 0.0
        for start in range(0, count, PIPELINE):
            pipeline = self._server.pipeline(transaction=False)
            for _ in range(min(PIPELINE, count - start)):
                pipeline.execute_command(*next(calls))
            before = self._spent()
            replies = pipeline.execute()
            spent += self._spent() - before
            other = next((reply[0] for reply in replies if reply[0] != outcome), None)
            if other is not None:
                raise RuntimeError(f"a call of the benchmark ended otherwise: {Status(other).name}")
        return spent / count

    def _spent(self) -> float:
        stats = self._server.info("commandstats").get("cmdstat_evalsha", {"usec": 0})
        return float(stats["usec"])

    def _hold_fours(self, event: CompiledEvent, count: int, far_end: int) -> list[UUID]:
        """Holds of four seats next to each other, spread over the part of the house before the far end."""
        script, keys = scripts()["hold_seats"], event_keys(event)
        rows = far_end // (SEATS_PER_ROW + 1)
        hold_ids = []
        for place in range(count):
            first = ordinal_of(place * rows // count * SEATS_PER_ROW)
            hold_id, seats = uuid4(), pack_pairs([(0, first + seat) for seat in range(4)])
            arguments = event_arguments(event) | hold_arguments(first) | {"hold": hold_id.bytes, "seats": seats}
            self._time(iter([words(script, keys, **arguments)]), 1)
            hold_ids.append(hold_id)
        return hold_ids

    def _hold_by_name(self, event: CompiledEvent, ordinals: Sequence[int]) -> None:
        """Hold seats in groups as large as one booking may be, each for another user."""
        group, seats = POLICY.max_seats_per_booking, [each for each in ordinals if event.map[each] == ord(".")]
        groups = [seats[at : at + group] for at in range(0, len(seats), group)]
        self._time(group_calls(event, groups), len(groups))

    async def _open_mixed(self) -> CompiledEvent:
        # What is left of a smaller house has too few pairs at the aisle.
        return await self._open_document(mixed_arena(max(20_000, self._size.seats), ALL_RULES))

    def _sell_better_part(self, event: CompiledEvent, percent: int) -> None:
        """Sell the better part of the house but for some single seats."""
        luck = random.Random(percent)  # noqa: S311 - a figure must be repeatable, not secret
        far_end = len(event.map) * percent // 100
        scatter = [ordinal % 2 == 1 or luck.random() < 0.9 for ordinal in range(far_end)] + [False] * len(event.map)
        self._sell(event, scatter.__getitem__)

    def _sell(self, event: CompiledEvent, sold: Callable[[int], bool]) -> None:
        """Write free seats as sold straight into the map and the counters, without the hundred thousand sales."""
        keys = event_keys(event)
        before = self._server.get(keys.key("map"))
        seats = bytes(ord("s") if byte == ord(".") and sold(ordinal) else byte for ordinal, byte in enumerate(before))
        self._server.set(keys.key("map"), seats)
        zone = event.zones[0].document
        counters = pack_zone(zone.capacity, len(zone.seats), held=seats.count(b"h"), sold=seats.count(b"s"))
        self._server.hset(keys.key("counts"), "0", counters)


async def _throughput(
    hold: HoldSeat, calls: int, ordinal_for: Callable[[int], int], expected: Status = Status.DONE
) -> float:
    """Calls per second from CALLERS callers at once, all with the outcome expected."""
    places = iter(range(calls))

    async def caller() -> None:
        for place in places:
            status = await hold(ordinal_for(place))
            if status != expected:
                raise RuntimeError(f"a call of the benchmark was answered {Status(status).name}")

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return calls / (time.perf_counter() - started)


def _by_evalsha(plain: redis.asyncio.Redis, event: CompiledEvent) -> HoldSeat:
    """Holds as somebody would write them with redis-py."""
    script, keys, constant = scripts()["hold_seats"], event_keys(event), event_arguments(event).values()
    names = [keys.key(key.name) for key in script.keys]

    async def hold(ordinal: int) -> int:
        words = (*names, *constant, *hold_arguments(ordinal).values())
        reply = await plain.evalsha(script.sha, len(names), *words)
        return int(reply[0])

    return hold
