"""One run: an event is opened, locust's buyers come, the stack is watched, and in the end everything is audited."""

import asyncio
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec

from holdfast.errors import OperatorError
from holdfast.http.tokens import Role
from holdfast.loadtest.chaos.audit import await_balance
from holdfast.loadtest.chaos.checker import Limits, Rule, Violation, check
from holdfast.loadtest.chaos.faults import FAULTS
from holdfast.loadtest.chaos.history import Call, lives
from holdfast.loadtest.chaos.stack import OPEN_POLICY, Layout, Stack
from holdfast.loadtest.chaos.stored import read_stored
from holdfast.loadtest.chaos.traffic import Arena
from holdfast.loadtest.crowd.records import STOPPED, Pulse, call_tail, pulse_tail
from holdfast.loadtest.runs.figures import Figures, outcome_of, summarise
from holdfast.loadtest.runs.machine import Machine, describe_machine
from holdfast.loadtest.runs.plans import RunPlan
from holdfast.loadtest.runs.samples import Sample, Sampler
from holdfast.loadtest.thresholds import exceeded
from holdfast.ports import LOOPBACK, available_port
from holdfast.processes import Process, spawn

PROGRESS_S = 2.0
# How long locust may take to start and to end, beyond the time it is to run.
GRACE_S = 45.0
MODE_S = 90.0
RECOVER_S = 60.0
SETTLE_S = 30.0

Say = Callable[[str], None]


class Mark(msgspec.Struct, frozen=True):
    """Something that was done to the stack during the run."""

    at_s: float
    text: str


class Audit(msgspec.Struct, frozen=True):
    """What was checked after the run, and what was untrue."""

    calls: int
    acknowledged: int
    sold: int
    stored_holds: int
    tickets: int
    violations: tuple[Violation, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All that there is to say of a run."""

    plan: RunPlan
    started_at: str
    interrupted: bool
    workers: int
    machine: Machine
    figures: Figures
    samples: tuple[Sample, ...]
    marks: tuple[Mark, ...]
    audit: Audit
    exceeded: tuple[str, ...]


@asynccontextmanager
async def open_load_stack(workers: int, variables: Mapping[str, str] | None = None) -> AsyncIterator[Stack]:
    """A stack as a deployment has it, in a temporary directory: nothing between it and its servers, and safe."""
    layout = Layout(shards=16, front_ends=1, workers=workers, keepers=1, proxied=False, safe=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-loadtest-", ignore_cleanup_errors=True) as directory:
        async with Stack(Path(directory) / "stack", layout=layout, variables=variables) as stack:
            yield stack


async def play(stack: Stack, plan: RunPlan, directory: Path, say: Say, stop: asyncio.Event) -> Result:
    """Run a scenario on a stack, with an event of its own, until it is over or `stop` is set, and audit it.

    `directory` has the tokens, and gets the history.
    """
    scenario = plan.scenario
    say(f"opening an event with {scenario.seats:,} seats and {scenario.places:,} places")
    policy = msgspec.structs.replace(OPEN_POLICY, default_hold_ttl_minutes=scenario.hold_minutes)
    arena = await stack.open_event(scenario.seats, scenario.places, policy)
    say(f"making {plan.tokens:,} tokens")
    tokens = directory / "tokens"
    tokens.write_text("\n".join(await asyncio.to_thread(_mint, stack, arena, plan.tokens)))
    if scenario.by_postgres:
        say("letting Postgres serve")
        await stack.command("mode", "db", "--reason", "load test", "--wait", within_s=MODE_S)
    machine = await describe_machine(stack)
    run = _Run(stack, plan, arena, directory, say)
    await run.traffic(tokens, stop)
    violations = await run.recover()
    say("auditing")
    audit = await run.audit(violations)
    figures = summarise(run.calls, run.pulses, plan.processes)
    return Result(
        plan=plan,
        started_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.began_at)),
        interrupted=stop.is_set(),
        workers=stack.layout.workers,
        machine=machine,
        figures=figures,
        samples=tuple(rebased(each, figures.first_s) for each in run.samples if each.at_s >= figures.first_s),
        marks=tuple(rebased(each, figures.first_s) for each in run.marks),
        audit=audit,
        exceeded=tuple(exceeded(plan.fail_over, figures.shares())),
    )


Moment = TypeVar("Moment", Sample, Mark)


def rebased(moment: Moment, first_s: float) -> Moment:
    """The same on a clock that begins with the first call."""
    return msgspec.structs.replace(moment, at_s=moment.at_s - first_s)


def _mint(stack: Stack, arena: Arena, number: int) -> list[str]:
    customers = [stack.token(uuid4(), arena.organization_id, Role.CUSTOMER) for _ in range(number)]
    return [*customers, stack.token(uuid4(), arena.organization_id, Role.SERVICE)]


class _Run:
    """The traffic of one run and what was seen of it. All times are seconds since `began_at`."""

    def __init__(self, stack: Stack, plan: RunPlan, arena: Arena, directory: Path, say: Say) -> None:
        self._stack = stack
        self._plan = plan
        self._arena = arena
        self._history = directory / "history"
        self._history.mkdir()
        self._say = say
        self.began_at = time.time()
        self._call_tail, self._pulse_tail = call_tail(self._history), pulse_tail(self._history)
        self.calls: list[Call] = []
        self.pulses: list[Pulse] = []
        self.samples: Sequence[Sample] = ()
        self.marks: list[Mark] = []

    @property
    def _now_s(self) -> float:
        return time.time() - self.began_at

    def _since(self, timestamp_s: float) -> float:
        return timestamp_s - self.began_at

    async def traffic(self, tokens: Path, stop: asyncio.Event) -> None:
        """Let buyers come until the time is over."""
        scenario = self._plan.scenario
        locust = await self._start_locust(tokens)
        sampler = Sampler(self._stack, self._arena, {"load generator": locust.pid}, self.began_at)
        watching = [asyncio.create_task(sampler.run())]
        if scenario.fault:
            watching.append(asyncio.create_task(self._break(scenario.fault, scenario.duration_s / 3)))
        try:
            await self._follow(locust, sampler, stop)
        finally:
            await asyncio.to_thread(locust.stop)
            for task in watching:
                task.cancel()
            ended = await asyncio.gather(*watching, return_exceptions=True)
            self._read()
        for each in ended:
            if isinstance(each, Exception):
                raise each
        self.samples = sampler.samples
        if not self.calls and not stop.is_set():
            raise OperatorError(f"No buyer came: {_last_line(locust.output())}")

    async def _start_locust(self, tokens: Path) -> Process:
        plan, scenario = self._plan, self._plan.scenario
        users = str(plan.locust_users)
        command = [sys.executable, "-P", "-m", "locust", "-f", str(plan.locust_file), "--headless", "--only-summary"]
        command += ["--host", self._stack.front_end_urls[0], "--users", users, "--spawn-rate", users]
        command += ["--run-time", f"{scenario.duration_s}s", "--exit-code-on-error", "0", "--loglevel", "WARNING"]
        command += ["--event", str(self._arena.event_id), "--token-file", str(tokens), "--think", str(plan.think)]
        command += ["--arrivals-per-s", str(scenario.arrivals_per_s), "--history", str(self._history)]
        if plan.processes > 1:
            port = str(available_port(LOOPBACK))
            command += ["--processes", str(plan.processes), "--master-port", port, "--master-bind-port", port]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "LOCUST_"))}
        environment = {**inherited, "HOLDFAST_LOADTEST_BEGAN_AT": repr(self.began_at)}
        log_path = self._history.parent / "locust.log"
        self._say(f"{plan.name}: {scenario.summary}; {scenario.duration_s} s")
        return await self._stack.in_thread(
            lambda: spawn("load generator", command, log_path=log_path, environment=environment)
        )

    async def _follow(self, locust: Process, sampler: Sampler, stop: asyncio.Event) -> None:
        """Say how it goes until locust ends by itself, is to be stopped, or takes too long."""
        deadline_s = self._now_s + self._plan.scenario.duration_s + GRACE_S
        while locust.is_alive() and self._now_s < deadline_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), PROGRESS_S)
            self._tell(self._read(), sampler.samples[-1] if sampler.samples else None)
            if stop.is_set():
                self._say("stopping early")
                return

    def _read(self) -> list[Call]:
        new = list(self._call_tail.more())
        self.calls += new
        self.pulses += self._pulse_tail.more()
        return new

    def _tell(self, calls: Sequence[Call], sample: Sample | None) -> None:
        counts: dict[str, int] = {}
        for call in (each for each in calls if each.error != STOPPED):
            counts[outcome_of(call)] = counts.get(outcome_of(call), 0) + 1
        seen = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing yet"
        filled = f"; {sample.held:,} held, {sample.sold:,} sold, {sample.mode}" if sample and sample.mode else ""
        self._say(f"{self._now_s:5.0f} s  {seen}{filled}")

    async def _break(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        fault = FAULTS[name]
        self.marks.append(Mark(self._now_s, fault.summary))
        self._say(f"{self._now_s:5.0f} s  {fault.summary}")
        await fault.strike(self._stack, random.Random(0))  # noqa: S311 - not a secret.
        self.marks.append(Mark(self._now_s, "what was broken is there again"))

    async def recover(self) -> list[Violation]:
        """Let Redis serve again, if it does not; what never comes back is a violation."""
        try:
            if self._plan.scenario.by_postgres:
                self._say("letting Redis serve again")
                await self._stack.command("mode", "redis", "--reason", "load test", "--wait", within_s=MODE_S)
            await self._stack.until(self._stack.is_ready, "Redis serves every shard", RECOVER_S)
        except (OperatorError, TimeoutError) as error:
            return [Violation(Rule.RECOVERED, str(error), self._now_s)]
        return []

    async def audit(self, violations: Sequence[Violation]) -> Audit:
        """Compare what buyers were told with what there is."""
        settings, event_id = self._stack.settings(), self._arena.event_id
        found = [*violations]
        if findings := await await_balance(settings, event_id, SETTLE_S):
            found.append(Violation(Rule.COUNTERS, "; ".join(findings[:10]), self._now_s))
        stored = await read_stored(self._stack.query, event_id, self.calls, self._since)
        # How long an answer took, and whether there was one, is for thresholds to judge.
        limits = Limits(call_s=math.inf, capacities=self._arena.capacities, breaking=frozenset({0}))
        found += await asyncio.to_thread(check, self.calls, stored, limits)
        told = lives(self.calls)
        return Audit(
            calls=len(self.calls),
            acknowledged=len(told),
            sold=sum(life.sold for life in told.values()),
            stored_holds=len(stored.holds),
            tickets=len(stored.tickets),
            violations=tuple(found),
        )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the load generator said nothing"
