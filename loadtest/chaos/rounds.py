"""A chaos round: traffic, a fault in the middle of it, recovery, and the check; and several of them on one stack."""

import asyncio
import math
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import aiohttp
import msgspec

from holdfast.engine.acks import Ack
from holdfast.engine.policy import AckRule
from holdfast.errors import OperatorError
from holdfast.http.tokens import Role
from holdfast.loadtest.buyer_calls import BuyerCalls
from holdfast.loadtest.chaos.audit import await_balance
from holdfast.loadtest.chaos.checker import Limits, Rule, Violation, check
from holdfast.loadtest.chaos.faults import FAULTS, NORMAL, Expectation, Fault
from holdfast.loadtest.chaos.history import HOLDING, Call, Operation, lives, write_history
from holdfast.loadtest.chaos.stack import OPEN_POLICY, Stack
from holdfast.loadtest.chaos.stored import read_stored
from holdfast.loadtest.chaos.traffic import Arena, Buyer, Recorder

BUYERS = 10
CALL_LIMIT_S = 12.0
RECOVER_S = 45.0
SETTLE_S = 20.0
# So many that buyers never run out of what they could hold, however long a fault takes: a time without a hold is then
# a time without service.
SEATS = 600
SEATS_PER_S = 40
PLACES_PER_SEAT = 0.25

# Recovery is not what a short run should wait for; what happens in it is the same.
QUICK_RECOVERY = {"HOLDFAST_RECOVER_AFTER_S": "0.5", "HOLDFAST_BREAKER_PROBE_S": "0.5"}

Report = Callable[[str], None]


class Round(msgspec.Struct, frozen=True):
    """What came of one round.

    `unavailable_s` is the longest time in which no hold was acknowledged to anybody, `next_hold_s` is how long it took
    from the fault to the acknowledgement of a hold that was asked for after it, `slowest_s` the longest an answer took.
    `changes` counts how often a shard changed hands.
    """

    fault: str
    seed: int
    calls: int
    acknowledged: int
    sold: int
    refused_busy: int
    unavailable_s: float
    next_hold_s: float
    slowest_s: float
    recovered_s: float
    changes: int
    violations: tuple[Violation, ...]


class Plan(msgspec.Struct, frozen=True):
    """How a round is played. `durable` says whose acknowledgements are held to the promises."""

    fault: str
    seed: int
    duration_s: float
    buyers: int = BUYERS
    ack: AckRule | None = None
    durable: frozenset[Ack] = frozenset({Ack.POSTGRES})
    history: Path | None = None


@asynccontextmanager
async def open_stack(variables: Mapping[str, str] = QUICK_RECOVERY) -> AsyncIterator[Stack]:
    """A stack in a temporary directory, which is gone afterwards with everything that ran there."""
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-", ignore_cleanup_errors=True) as directory:
        async with Stack(Path(directory) / "stack", variables=variables) as stack:
            yield stack


async def play(plans: Sequence[Plan], report: Report, variables: Mapping[str, str] = QUICK_RECOVERY) -> list[Round]:
    """Play rounds, each fault on a stack of its own; one that does not recover is replaced."""
    rounds: list[Round] = []
    for fault in dict.fromkeys(plan.fault for plan in plans):
        left = [plan for plan in plans if plan.fault == fault]
        while left:
            async with open_stack(variables) as stack:
                while left:
                    plan = left.pop(0)
                    rounds.append(await play_round(stack, plan))
                    report(describe(rounds[-1]))
                    if any(violation.rule is Rule.RECOVERED for violation in rounds[-1].violations):
                        break
    return rounds


async def play_round(stack: Stack, plan: Plan, fault: Fault | None = None) -> Round:
    """Play one round on a stack that is in order, with an event of its own; of the plan's fault, or the one given."""
    fault = fault or FAULTS[plan.fault]
    seats = SEATS + int(SEATS_PER_S * plan.duration_s)
    arena = await stack.open_event(
        seats, int(seats * PLACES_PER_SEAT), msgspec.structs.replace(OPEN_POLICY, ack=plan.ack)
    )
    changes = await _count_changes(stack)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        recorder = Recorder(session, stack.front_end_urls, CALL_LIMIT_S + 3)
        times, failure = await _traffic(stack, plan, fault, arena, recorder)
        violations = [Violation(Rule.RECOVERED, failure, recorder.now_s)] if failure else []
        if not violations:
            violations += await _settle(stack, arena, recorder)
        calls = tuple(recorder.calls)
        stored = await read_stored(stack.query, arena.event_id, calls, recorder.since)
    if plan.history:
        write_history(plan.history, calls)
    limits = _limits(plan, arena, fault.expectation)
    return Round(
        fault=plan.fault,
        seed=plan.seed,
        calls=len(calls),
        acknowledged=len(lives(calls, plan.durable)),
        sold=sum(call.good for call in calls if call.operation is Operation.COMPLETE),
        refused_busy=sum(call.status in (429, 503) for call in calls),
        unavailable_s=_longest_gap(calls, times.stopped_s),
        next_hold_s=_next_hold(calls, times.struck_s) - times.struck_s,
        slowest_s=max((call.ended_s - call.started_s for call in calls), default=0.0),
        recovered_s=times.recovered_s - times.struck_s,
        changes=await _count_changes(stack) - changes,
        violations=(*check(calls, stored, limits), *violations),
    )


def _limits(plan: Plan, arena: Arena, expectation: Expectation = NORMAL) -> Limits:
    return Limits(
        call_s=CALL_LIMIT_S,
        capacities=arena.capacities,
        durable=plan.durable,
        breaking=expectation.breaking,
        early_s=expectation.early_s,
    )


class _Times(msgspec.Struct, frozen=True):
    """When the fault struck, when all was well again, and when buyers were told to make no more calls."""

    struck_s: float
    recovered_s: float
    stopped_s: float


async def _traffic(stack: Stack, plan: Plan, fault: Fault, arena: Arena, recorder: Recorder) -> tuple[_Times, str]:
    """Let buyers buy while the fault strikes, and until the last is answered; returns what never was well again."""
    stop = asyncio.Event()
    service = stack.token(uuid4(), arena.organization_id, Role.SERVICE)
    chance = random.Random(plan.seed)  # noqa: S311 - a run that can be repeated is the point.
    buyers = [
        Buyer(
            number,
            arena,
            (stack.token(uuid4(), arena.organization_id, Role.CUSTOMER), service),
            random.Random(chance.getrandbits(64)),  # noqa: S311
            recorder,
        )
        for number in range(plan.buyers)
    ]
    tasks = [asyncio.create_task(buyer.run(stop)) for buyer in buyers]
    failure = ""
    try:
        await asyncio.sleep(plan.duration_s * 0.3)
        struck_s = recorder.now_s
        await fault.strike(stack, chance)
        while fault.goes_on and recorder.now_s < struck_s + plan.duration_s:
            await fault.strike(stack, chance)
        await stack.until(stack.is_ready, "Redis serves every shard and every front end is ready", RECOVER_S)
        recovered_s = recorder.now_s
        await asyncio.sleep(plan.duration_s * 0.4)
    except (TimeoutError, OperatorError) as error:
        recovered_s, failure = recorder.now_s, str(error)
    finally:
        stopped_s = recorder.now_s
        stop.set()
        await asyncio.gather(*tasks)
    return _Times(struck_s, recovered_s, stopped_s), failure


async def _settle(stack: Stack, arena: Arena, recorder: Recorder) -> list[Violation]:
    """Whether a hold succeeds by every front end, and the books balance once nothing is under way."""
    try:
        await stack.until(stack.is_ready, "Redis serves every shard, and still does", RECOVER_S)
        failure = await _hold_by_everyone(stack, arena, recorder)
    except TimeoutError as error:
        failure = str(error)
    if failure:
        return [Violation(Rule.RECOVERED, failure, recorder.now_s)]
    findings = await await_balance(stack.settings(), arena.event_id, SETTLE_S)
    return [Violation(Rule.COUNTERS, "; ".join(findings[:10]), recorder.now_s)] if findings else []


async def _hold_by_everyone(stack: Stack, arena: Arena, recorder: Recorder) -> str:
    chance = random.Random(0)  # noqa: S311
    left = set(range(len(stack.front_end_urls)))
    deadline = time.monotonic() + SETTLE_S
    asking = BuyerCalls(arena.event_id, stack.token(uuid4(), arena.organization_id, Role.CUSTOMER), "")
    while left:
        request = asking.hold_best(arena.seated_zone, 1)
        answer = await recorder.ask(-1, chance, request)
        if answer.call.good or answer.call.status == 409:
            left.discard(answer.call.front_end)
        elif time.monotonic() > deadline:
            return f"front end {answer.call.front_end} still answers {answer.call.status} {answer.call.error}"
        await asyncio.sleep(0.05)
    return ""


async def _count_changes(stack: Stack) -> int:
    (row,) = await stack.query("SELECT count(*) FROM transitions")
    return int(row["count"])


def _next_hold(calls: Sequence[Call], after_s: float) -> float:
    granted = (call.ended_s for call in calls if call.operation in HOLDING and call.good and call.started_s >= after_s)
    return min(granted, default=math.inf)


def _longest_gap(calls: Sequence[Call], ended_s: float) -> float:
    moments = sorted(call.ended_s for call in calls if call.operation in HOLDING and call.good)
    moments = [0.0, *(moment for moment in moments if moment <= ended_s), ended_s]
    return max(later - earlier for earlier, later in pairwise(moments))


def describe(played: Round) -> str:
    """A round in a line, and its first violation below it."""
    found = len(played.violations)
    line = (
        f"{played.fault} seed {played.seed}: {played.calls} calls, {played.acknowledged} holds acknowledged, "
        f"{played.sold} sales, {played.refused_busy} told to wait, no hold for {played.unavailable_s:.1f} s at most, "
        f"the next one {played.next_hold_s:.1f} s after the fault, in order again after {played.recovered_s:.1f} s, "
        f"{played.changes} changes of mode, {found or 'no'} violation{'' if found == 1 else 's'}"
    )
    return f"{line}\n  {played.violations[0]}" if found else line
