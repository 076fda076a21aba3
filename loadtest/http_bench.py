"""What holding a seat over HTTP costs, against an aiohttp endpoint that does nothing.

Both are served by one process with the same server settings, and asked over the same number of connections, in turns.
Tokens are verified, bodies validated, limits enforced and everything audited, as always.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle, islice
from statistics import median, quantiles

import msgspec
import uvloop
from redis.asyncio import Redis

from holdfast.engine.keys import shard_of
from holdfast.engine.layout import EventDocument
from holdfast.engine.settings import Settings
from holdfast.loadtest.cpu_times import cpu_seconds
from holdfast.loadtest.http_load import Load, generate
from holdfast.loadtest.http_requests import PREFER_REDIS, Reservations
from holdfast.loadtest.noop_server import NOOP_PATH
from holdfast.persistence.fence import read_controls
from holdfast.persistence.pool import connect
from holdfast.ports import LOOPBACK

CONNECTIONS = 64
GENERATOR = "generator"
STRETCHES = ("noop", "durable", "fast", "refused")

Report = Callable[[str], None]


class HttpSize(msgspec.Struct, frozen=True):
    """How much the benchmark does, per round."""

    noops: int = 12_000
    durable: int = 5_000
    fast: int = 8_000
    refusals: int = 10_000
    rounds: int = 4

    @property
    def seats(self) -> int:
        """Seats that the rounds and the warming up take."""
        return (self.durable + self.fast) * self.rounds + self.durable + self.fast + 1


class HttpFigures(msgspec.Struct, frozen=True):
    """The figures of one run. Rates are per second, times in milliseconds, ratios to the no-op of the same round.

    `generator_busy` is the share of a core that the load generator took while it asked for nothing: near 1, it is what
    limits the no-op, and the ratios flatter Holdfast. `fast_drain_ms` is how long the keeper worked on after holds that
    Redis acknowledged, until Postgres had them all. `cpu_us` says where the time goes: microseconds of processor time
    per request, by stretch and process, while the requests were under way.
    """

    noop_per_s: float
    durable_per_s: float
    fast_per_s: float
    refused_per_s: float
    durable_to_noop: float
    fast_to_noop: float
    refused_to_noop: float
    noop_p50_ms: float
    noop_p99_ms: float
    durable_p50_ms: float
    durable_p99_ms: float
    fast_p50_ms: float
    fast_p99_ms: float
    refused_p50_ms: float
    refused_p99_ms: float
    fast_drain_ms: float
    generator_busy: float
    cpu_us: dict[str, dict[str, float]]


class _Stretch(msgspec.Struct, frozen=True):
    """One kind of request in one round: what it met, what it cost each process, and what was left to be persisted."""

    load: Load
    cpu_us: dict[str, float]
    drain_ms: float


def run_http_bench(
    settings: Settings,
    noop_port: int,
    event: EventDocument,
    size: HttpSize,
    *,
    pids: Mapping[str, int],
    report: Report,
) -> HttpFigures:
    """Measure the front end at the settings' port and the no-op at another, which serve already.

    `pids` are the processes whose time is counted.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Bench(settings, noop_port, event, size, pids=pids, report=report).run())


class _Bench:
    def __init__(
        self,
        settings: Settings,
        noop_port: int,
        event: EventDocument,
        size: HttpSize,
        *,
        pids: Mapping[str, int],
        report: Report,
    ) -> None:
        self._settings = settings
        self._noop_port = noop_port
        self._event = event
        self._requests = requests = Reservations(settings, event)
        self._size = size
        self._pids = {**pids, GENERATOR: os.getpid()}
        self._report = report
        hot_seat = requests.next_seat()
        # Somebody who does not get a seat tries again, so these are as many users as there are connections.
        self._disappointed = [requests.reservation(hot_seat, requests.token()) for _ in range(CONNECTIONS)]
        self._winner = requests.reservation(hot_seat, requests.token())

    async def run(self) -> HttpFigures:
        await measure(self._settings.port, [self._winner], "201")
        await self._round()
        rounds = []
        for number in range(1, self._size.rounds + 1):
            rounds.append(await self._round())
            rates = ", ".join(f"{stretch.load.per_s:,.0f}" for stretch in rounds[-1])
            self._report(f"round {number} of {self._size.rounds}: {rates} per second")
        return _figures(rounds)

    async def _round(self) -> tuple[_Stretch, ...]:
        """One stretch of each kind."""
        requests, port = self._requests, self._settings.port
        noop = requests.request(NOOP_PATH, requests.token())
        noops = await self._stretch(self._noop_port, [noop] * self._size.noops, "200")
        durable = await self._stretch(port, requests.pack(self._size.durable), "201")
        fast = await self._stretch(port, requests.pack(self._size.fast, PREFER_REDIS), "201")
        disappointed = list(islice(cycle(self._disappointed), self._size.refusals))
        refused = await self._stretch(port, disappointed, "409")
        return noops, durable, fast, refused

    async def _stretch(self, port: int, requests: list[bytes], expected: str) -> _Stretch:
        before = cpu_seconds(self._pids)
        load = await measure(port, requests, expected)
        after = cpu_seconds(self._pids)
        cpu_us = {name: (after[name] - before[name]) / len(requests) * 1e6 for name in after}
        # What was acknowledged early is still being persisted, which must not burden what comes next.
        ended = time.perf_counter()
        await drained(self._settings, self._event)
        return _Stretch(load, cpu_us, (time.perf_counter() - ended) * 1000)


async def measure(port: int, requests: Iterable[bytes], expected: str) -> Load:
    """Send the requests over the benchmark's connections. Raises RuntimeError if any is answered in another way."""
    load = await generate(LOOPBACK, port, requests, CONNECTIONS)
    if set(load.statuses) != {expected}:
        raise RuntimeError(f"wanted {expected} only, got {load.statuses}")
    return load


async def drained(settings: Settings, event: EventDocument) -> None:
    """Return once everything in the log of the event's shard is in Postgres."""
    shard = shard_of(event.event_id, settings.shards)
    connection = await connect(settings.postgres_dsn, name="bench")
    try:
        keys = (await read_controls(connection, [shard]))[shard].keys
    finally:
        await connection.close()
    async with Redis.from_url(settings.redis_url) as redis:
        while await redis.get(keys.key("mark")) != await redis.get(keys.key("seq")):  # noqa: ASYNC110
            # Nobody but Redis knows, so there is no event to wait for.
            await asyncio.sleep(0.02)


def _figures(rounds: list[tuple[_Stretch, ...]]) -> HttpFigures:
    stretches = dict(zip(STRETCHES, zip(*rounds, strict=True), strict=True))
    noops = stretches["noop"]
    figures: dict[str, float] = {
        "generator_busy": median(stretch.load.busy for stretch in noops),
        "fast_drain_ms": median(stretch.drain_ms for stretch in stretches["fast"]),
    }
    cpu_us: dict[str, dict[str, float]] = {}
    for name, measured in stretches.items():
        cuts = quantiles([latency for stretch in measured for latency in stretch.load.latencies_ms], n=100)
        figures |= {
            f"{name}_per_s": median(stretch.load.per_s for stretch in measured),
            f"{name}_p50_ms": cuts[49],
            f"{name}_p99_ms": cuts[98],
        }
        if name != "noop":
            ratios = [stretch.load.per_s / noop.load.per_s for stretch, noop in zip(measured, noops, strict=True)]
            figures[f"{name}_to_noop"] = median(ratios)
        processes = measured[0].cpu_us
        cpu_us[name] = {process: median(stretch.cpu_us[process] for stretch in measured) for process in processes}
    return HttpFigures(cpu_us=cpu_us, **figures)
