"""Holdfast against other ways to hold a seat, over HTTP: side by side, in turns, in one run.

All of them verify tokens, validate the request and look up event and seat in the same way, are served by one process
with the same server settings, and are asked over the same number of connections for seats that nobody has asked for
before. Every ratio is taken within a round, where the machine was the same for both sides.
"""

import asyncio
import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from statistics import median, quantiles

import msgspec
import uvloop

from holdfast.engine.layout import EventDocument
from holdfast.engine.settings import Settings
from holdfast.loadtest.http_bench import CONNECTIONS, drained, measure
from holdfast.loadtest.http_load import Load
from holdfast.loadtest.http_requests import PREFER_REDIS, Reservations
from holdfast.loadtest.noop_server import NOOP_PATH

ROUNDS = 5

# Whichever comes first in a round gains or loses by what the last round left behind, so the order turns.
ORDER = ("noop", "durable", "dual_write", "fast", "row_lock", "redis_only")
LABELS = {
    "durable": "Holdfast, durable (the default)",
    "fast": "Holdfast, `ack=redis`",
    "row_lock": "(a) Postgres only, `FOR UPDATE NOWAIT`",
    "dual_write": "(b) `SET NX`, then a Postgres transaction",
    "redis_only": "(c) redis-py `evalsha`, no persistence",
    "noop": "(d) aiohttp no-op",
}
GOALS = {
    ("durable", "dual_write"): 3.0,
    ("durable", "row_lock"): 6.0,
    ("durable", "noop"): 0.45,
    ("fast", "noop"): 0.70,
}

Report = Callable[[str], None]


class CompareSize(msgspec.Struct, frozen=True):
    """How many requests each is sent in a round."""

    noops: int = 12_000
    durable: int = 4_000
    fast: int = 6_000
    row_lock: int = 1_500
    dual_write: int = 1_500
    redis_only: int = 4_000
    rounds: int = ROUNDS

    @property
    def seats(self) -> int:
        """Seats for every round and the warming up, of whoever takes most."""
        return max(self.durable + self.fast, self.row_lock, self.dual_write, self.redis_only) * (self.rounds + 1)


class Spread(msgspec.Struct, frozen=True):
    """The middle and the ends of what the rounds gave."""

    median: float
    min: float
    max: float


class Contender(msgspec.Struct, frozen=True):
    """What one way did: answers per second, and milliseconds over all rounds. `to_noop` is its ratio to the no-op."""

    per_s: Spread
    to_noop: Spread
    p50_ms: float
    p99_ms: float


class Goal(msgspec.Struct, frozen=True):
    """A ratio that Holdfast is to reach, and whether the median does."""

    ratio: Spread
    goal: float
    met: bool


class Comparison(msgspec.Struct, frozen=True):
    """The outcome of a run. `generator_busy` is the share of a core that the generator took at the no-op: near 1 it is
    what limits the no-op, and ratios to it flatter."""

    at: datetime
    cores: int
    python: str
    connections: int
    rounds: int
    contenders: dict[str, Contender]
    goals: dict[str, Goal]
    generator_busy: float


def run_compare_bench(
    settings: Settings, ports: Mapping[str, int], event: EventDocument, size: CompareSize, report: Report
) -> Comparison:
    """Measure Holdfast at the settings' port and the others at theirs, all of which serve already."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Bench(settings, ports, event, size).run(report))


class _Bench:
    def __init__(self, settings: Settings, ports: Mapping[str, int], event: EventDocument, size: CompareSize) -> None:
        self._settings = settings
        self._event = event
        self._size = size
        self._ports = {"durable": settings.port, "fast": settings.port, **ports}
        # Durable and fast take seats of one store, the others have a store each.
        own = Reservations(settings, event)
        self._requests = {name: Reservations(settings, event) for name in ports} | {"durable": own, "fast": own}

    async def run(self, report: Report) -> Comparison:
        report("warming up …")
        await self._round(0)
        rounds = []
        for number in range(1, self._size.rounds + 1):
            rounds.append(await self._round(number))
            rates = ", ".join(f"{name} {rounds[-1][name].per_s:,.0f}" for name in LABELS)
            report(f"round {number} of {self._size.rounds}, per second: {rates}")
        return compare(rounds)

    async def _round(self, number: int) -> dict[str, Load]:
        turn = number % len(ORDER)
        return {name: await self._stretch(name) for name in ORDER[turn:] + ORDER[:turn]}

    async def _stretch(self, name: str) -> Load:
        """One contender's requests, answered and, where that comes later, persisted before the next one's turn."""
        requests, port = self._requests[name], self._ports[name]
        if name == "noop":
            return await measure(port, [requests.request(NOOP_PATH, requests.token())] * self._size.noops, "200")
        prefer = PREFER_REDIS if name == "fast" else b""
        load = await measure(port, requests.pack(getattr(self._size, name), prefer), "201")
        if name == "fast":
            await drained(self._settings, self._event)
        return load


def compare(rounds: list[dict[str, Load]]) -> Comparison:
    """The figures of some rounds."""

    def ratio(name: str, other: str) -> Spread:
        return _spread([each[name].per_s / each[other].per_s for each in rounds])

    contenders = {}
    for name in LABELS:
        cuts = quantiles([latency for each in rounds for latency in each[name].latencies_ms], n=100)
        rate = _spread([each[name].per_s for each in rounds])
        contenders[name] = Contender(rate, ratio(name, "noop"), cuts[49], cuts[98])
    goals = {}
    for (name, other), goal in GOALS.items():
        reached = ratio(name, other)
        goals[f"{name}_to_{other}"] = Goal(reached, goal, reached.median >= goal)
    return Comparison(
        at=datetime.now(UTC).replace(microsecond=0),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        connections=CONNECTIONS,
        rounds=len(rounds),
        contenders=contenders,
        goals=goals,
        generator_busy=median(each["noop"].busy for each in rounds),
    )


def describe(comparison: Comparison) -> str:
    """The figures as two Markdown tables: medians and, in brackets, the least and the most of the rounds."""
    lines = ["| | per second | to the no-op | p50 ms | p99 ms |", "| --- | --- | --- | --- | --- |"]
    for name, label in LABELS.items():
        each = comparison.contenders[name]
        rate = f"{each.per_s.median:,.0f} ({each.per_s.min:,.0f} to {each.per_s.max:,.0f})"
        lines.append(f"| {label} | {rate} | {_say(each.to_noop)} | {each.p50_ms:.1f} | {each.p99_ms:.1f} |")
    lines += ["", "| ratio | measured | goal | |", "| --- | --- | --- | --- |"]
    for (name, other), goal in zip(GOALS, comparison.goals.values(), strict=True):
        met = "met" if goal.met else "missed"
        lines.append(f"| {name} to {other} | {_say(goal.ratio)} | {goal.goal:.2f} | {met} |")
    lines += [
        "",
        f"{comparison.rounds} rounds, {comparison.connections} connections, {comparison.cores} cores, "
        f"Python {comparison.python}, {comparison.at:%d %B %Y}; the load generator took "
        f"{comparison.generator_busy:.2f} of a core at the no-op.",
    ]
    return "\n".join(lines)


def _spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def _say(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.min:.2f} to {spread.max:.2f})"
