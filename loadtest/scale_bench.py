"""What holds cost when there are many: of seats in the event, of live holds in the server, of connections to the front
end, and of people who watch.

Whatever is compared is measured in turns within one run, and the figures that carry over to other machines are ratios.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles
from types import MappingProxyType

import msgspec
import redis
import redis.asyncio
import uvloop

from holdfast.engine.layout import CompiledEvent, EventDocument
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.settings import Settings
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.wire import Wire
from holdfast.loadtest.bystanders import Plan, Seen, bystanders
from holdfast.loadtest.cpu_times import cpu_seconds
from holdfast.loadtest.http_bench import CONNECTIONS, GENERATOR, drained
from holdfast.loadtest.http_load import Load, generate
from holdfast.loadtest.http_requests import Reservations
from holdfast.loadtest.script_bench import Bench, Report, Size
from holdfast.loadtest.script_calls import RETENTION_MS, SHARDS, Words, hold_calls
from holdfast.ports import LOOPBACK

FRONT_END = "front end"
BYSTANDERS = "bystanders"
NOBODY: Mapping[str, int] = MappingProxyType({})
POLL_S = 0.1
GONE_S = 30.0


class ScaleSize(msgspec.Struct, frozen=True):
    """How much the benchmark does. `holds` are those of one stretch over HTTP."""

    seats: int = 100_000
    small_seats: int = 1_000
    events: int = 10
    script_rounds: int = 20
    calls: int = 500
    idle: int = 10_000
    readers: int = 1_000
    holds: int = 4_000
    rounds: int = 6

    @property
    def script(self) -> Size:
        """The same for the script benchmark."""
        return Size(seats=self.seats, small_seats=self.small_seats, rounds=self.script_rounds, calls=self.calls)

    @property
    def http_seats(self) -> int:
        """Seats that the stretches and the one that warms up take."""
        return self.holds * (self.rounds * len(STRETCHES) + 1)


class HoldsFigures(msgspec.Struct, frozen=True):
    """What a hold costs in the server, in microseconds of its time per call.

    `small_us` and `large_us` are of events with few seats and with many that are all held, on one server. Then
    `crowded_us` is of a server with all the `live_holds`, in each of its events in turn, and `crowded_new_us` there in
    an event that nobody has held anything of; `alone_us` is of such an event on a server with nothing else.
    """

    small_us: float
    large_us: float
    growth: float
    live_holds: int
    events: int
    bytes_per_live_hold: float
    alone_us: float
    crowded_us: float
    crowded_new_us: float
    crowded_to_alone: float
    crowded_new_to_alone: float


class Stretches(msgspec.Struct, frozen=True):
    """A figure of holds alone, with idle connections, and with those and readers of the live feed."""

    alone: float
    idle: float
    watched: float


class ConnectionFigures(msgspec.Struct, frozen=True):
    """What durable holds over HTTP are like while others are connected, and how those fare. Times in milliseconds.

    `to_alone` are ratios of rates within a round, `p99_to_alone` of the 99th percentiles of all rounds. `cpu_us` is
    microseconds of processor time per hold and process. `readers_complete` were told of every seat exactly once, in
    the round in which the fewest were; `feed_behind_ms` is how long after the last answered hold the last reader knew.
    """

    connections: int
    idle: int
    idle_answered: int
    readers: int
    readers_complete: int
    readers_returned: int
    open_s: float
    bytes_per_idle: float
    feed_behind_ms: float
    feed_mb_per_s: float
    per_s: Stretches
    p50_ms: Stretches
    p99_ms: Stretches
    to_alone: Stretches
    p99_to_alone: Stretches
    cpu_us: dict[str, Stretches]


class ScaleFigures(msgspec.Struct, frozen=True):
    """Both halves of a run."""

    holds: HoldsFigures
    connections: ConnectionFigures


STRETCHES = ("alone", "idle", "watched")


def run_holds_bench(empty_url: str, crowded_url: str, size: ScaleSize, report: Report) -> HoldsFigures:
    """Measure the scripts on two servers of the same kind, of which one is filled. Both are emptied first."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_compare_servers(empty_url, crowded_url, size, report))


def run_connections_bench(
    settings: Settings, event: EventDocument, size: ScaleSize, *, pids: Mapping[str, int], report: Report
) -> ConnectionFigures:
    """Measure the front end at the settings' port, which sells the event. `pids` are the processes of the stack."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Connections(settings, event, size, pids=pids, report=report).run())


async def _compare_servers(empty_url: str, crowded_url: str, size: ScaleSize, report: Report) -> HoldsFigures:
    async with _Holds(empty_url, size) as empty, _Holds(crowded_url, size) as crowded:
        report(f"{size.seats:,} live holds of one event …")
        large, _ = await empty.fill()
        small_us, large_us = await empty.compare_sizes(large)
        await empty.clear()
        report(f"{size.seats * size.events:,} live holds of {size.events} events …")
        full, bytes_per_hold = await crowded.fill_all(report)
        report("holds among them, and on an empty server …")
        alone, new = await empty.new_event(), await crowded.new_event()
        times: dict[str, list[float]] = {"alone": [], "crowded": [], "new": []}
        # In turns between the servers, since whoever was asked just before finds its data at hand.
        for number in range(size.script_rounds):
            times["alone"].append(empty.cost(alone))
            times["crowded"].append(crowded.cost(full[number % len(full)]))
            times["alone"].append(empty.cost(alone))
            times["new"].append(crowded.cost(new))
    alone_us, crowded_us, new_us = (median(times[name]) for name in ("alone", "crowded", "new"))
    return HoldsFigures(
        small_us=small_us,
        large_us=large_us,
        growth=large_us / small_us,
        live_holds=size.seats * size.events,
        events=size.events,
        bytes_per_live_hold=bytes_per_hold,
        alone_us=alone_us,
        crowded_us=crowded_us,
        crowded_new_us=new_us,
        crowded_to_alone=crowded_us / alone_us,
        crowded_new_to_alone=new_us / alone_us,
    )


class _Holds(Bench):
    """The script benchmark's measurements on a server with more on it."""

    def __init__(self, url: str, size: ScaleSize) -> None:
        self._wire = Wire(url, timeout_s=30)
        backend = RedisBackend(self._wire, shards=SHARDS, epoch=FIRST_EPOCH, retention_ms=RETENTION_MS)
        super().__init__(redis.Redis.from_url(url), backend, size.script)
        self._url = url
        self._events = size.events

    async def __aenter__(self) -> "_Holds":
        await self.clear()
        await self._wire.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._wire.__aexit__(None, None, None)
        self._server.close()

    async def clear(self) -> None:
        """Empty the server and put it into service again."""
        self._server.flushall()
        async with redis.asyncio.Redis.from_url(self._url) as driver:
            await open_shards(driver, SHARDS)

    async def fill_all(self, report: Report) -> tuple[list[Iterator[Words]], float]:
        """Events with all their seats held but some: further holds of each, and the bytes that every live one takes."""
        full, taken = [], []
        for number in range(1, self._events + 1):
            event, bytes_per_hold = await self.fill()
            full.append(hold_calls(event, first=self._size.seats))
            taken.append(bytes_per_hold)
            report(f"{number * self._size.seats:,} live holds")
        # The server rewrites its log now and then as it grows, by a copy of itself that takes processor and memory.
        while self._server.info("persistence")["aof_rewrite_in_progress"]:  # noqa: ASYNC110
            # Only the server knows, so there is no event to wait for.
            await asyncio.sleep(POLL_S)
        return full, sum(taken) / len(taken)

    async def new_event(self) -> Iterator[Words]:
        """Holds of an event as large as the others, of which nothing is held."""
        size = self._size
        event: CompiledEvent = await self._open(size.seats + 2 * size.rounds * size.calls)
        return hold_calls(event)

    def cost(self, calls: Iterator[Words]) -> float:
        """Server microseconds per call of the next ones."""
        return self._time(calls, self._size.calls)


class _Stretch(msgspec.Struct, frozen=True):
    """What some holds were like, and the bystanders meanwhile."""

    load: Load
    cpu_us: dict[str, float]
    resident: int
    open_s: float = 0.0
    behind_ms: float = 0.0
    feed_mb_per_s: float = 0.0
    seen: Seen | None = None


class _Connections:
    def __init__(
        self, settings: Settings, event: EventDocument, size: ScaleSize, *, pids: Mapping[str, int], report: Report
    ) -> None:
        self._settings = settings
        self._event = event
        self._size = size
        self._pids = pids
        self._report = report
        self._requests = Reservations(settings, event)

    async def run(self) -> ConnectionFigures:
        await self._holds()
        rounds: dict[str, list[_Stretch]] = {name: [] for name in STRETCHES}
        for number in range(self._size.rounds):
            # Forth and back, so that none always comes after the same other one.
            for name in STRETCHES if number % 2 == 0 else reversed(STRETCHES):
                rounds[name].append(await self._stretch(name))
            said = ", ".join(f"{name} {rounds[name][-1].load.per_s:,.0f}" for name in STRETCHES)
            self._report(f"round {number + 1} of {self._size.rounds}: {said} holds per second")
        return self._figures(rounds)

    async def _stretch(self, name: str) -> _Stretch:
        if name == "alone":
            return await self._holds()
        size = self._size
        readers = size.readers if name == "watched" else 0
        path = f"/api/events/{self._event.event_id}/live"
        plan = Plan(self._settings.port, size.idle, readers, path, self._requests.token())
        others_gone = _Sockets(self._pids[FRONT_END])
        async with bystanders(plan) as others:
            opened = await others.open()
            began = time.time()
            stretch = await self._holds({BYSTANDERS: others.pid})
            ended = began + len(stretch.load.latencies_ms) / stretch.load.per_s
            seen = await others.leave(len(stretch.load.latencies_ms))
        await others_gone.wait()
        return msgspec.structs.replace(
            stretch,
            open_s=opened.seconds,
            seen=seen,
            behind_ms=max(0.0, seen.last_at - ended) * 1000,
            feed_mb_per_s=seen.feed_bytes / 1e6 / (seen.last_at - began) if readers else 0.0,
        )

    async def _holds(self, others: Mapping[str, int] = NOBODY) -> _Stretch:
        requests = self._requests.pack(self._size.holds)
        pids = {**self._pids, GENERATOR: os.getpid(), **others}
        resident, before = _resident(self._pids[FRONT_END]), cpu_seconds(pids)
        load = await generate(LOOPBACK, self._settings.port, requests, CONNECTIONS)
        after = cpu_seconds(pids)
        if set(load.statuses) != {"201"}:
            raise RuntimeError(f"wanted 201 only, got {load.statuses}")
        await drained(self._settings, self._event)
        cpu_us = {name: (after[name] - before[name]) / len(requests) * 1e6 for name in before}
        return _Stretch(load, cpu_us, resident)

    def _figures(self, rounds: dict[str, list[_Stretch]]) -> ConnectionFigures:
        size = self._size
        alone, watched = rounds["alone"], rounds["watched"]
        seen = [stretch.seen for name in ("idle", "watched") for stretch in rounds[name] if stretch.seen]
        read = [stretch.seen for stretch in watched if stretch.seen]
        cuts = {
            name: quantiles([latency for each in rounds[name] for latency in each.load.latencies_ms], n=100)
            for name in STRETCHES
        }
        rates = {name: [each.load.per_s for each in rounds[name]] for name in STRETCHES}
        grown = [idle.resident - alone.resident for idle, alone in zip(rounds["idle"], alone, strict=True)]
        return ConnectionFigures(
            connections=CONNECTIONS,
            idle=size.idle,
            idle_answered=min(each.idle_answered for each in seen),
            readers=size.readers,
            readers_complete=min(each.readers_complete for each in read),
            readers_returned=sum(each.readers_returned for each in read),
            open_s=median(each.open_s for each in rounds["idle"]),
            # Memory that was once used is used again, so only the first time shows what it takes.
            bytes_per_idle=max(grown) / size.idle,
            feed_behind_ms=median(each.behind_ms for each in watched),
            feed_mb_per_s=median(each.feed_mb_per_s for each in watched),
            per_s=Stretches(*(median(rates[name]) for name in STRETCHES)),
            p50_ms=Stretches(*(cuts[name][49] for name in STRETCHES)),
            p99_ms=Stretches(*(cuts[name][98] for name in STRETCHES)),
            to_alone=Stretches(
                *(
                    median(rate / plain for rate, plain in zip(rates[name], rates["alone"], strict=True))
                    for name in STRETCHES
                )
            ),
            p99_to_alone=Stretches(*(cuts[name][98] / cuts["alone"][98] for name in STRETCHES)),
            cpu_us={
                process: Stretches(
                    *(median(each.cpu_us.get(process, 0.0) for each in rounds[name]) for name in STRETCHES)
                )
                for process in watched[0].cpu_us
            },
        )


class _Sockets:
    """What a process has open, to see when it is no more than now. Where that cannot be seen, it is said to be so."""

    def __init__(self, pid: int) -> None:
        self._descriptors = Path(f"/proc/{pid}/fd")
        self._before = self._open()

    async def wait(self) -> None:
        """Return once the process has done with the connections of others, which would burden what comes next."""
        async with asyncio.timeout(GONE_S):
            while self._open() > self._before + CONNECTIONS:  # noqa: ASYNC110
                # Nobody but the kernel knows, so there is no event to wait for.
                await asyncio.sleep(POLL_S)

    def _open(self) -> int:
        return len(list(self._descriptors.iterdir())) if self._descriptors.exists() else 0


def _resident(pid: int) -> int:
    """Bytes of memory that a process has, as Linux counts them; elsewhere nothing is said."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
