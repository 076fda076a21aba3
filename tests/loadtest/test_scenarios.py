"""Every scenario runs, does what its name says, and passes its audit; an audit that finds a lie says so."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.loadtest.chaos.checker import Rule
from holdfast.loadtest.chaos.history import Call, Operation, Told, write_history
from holdfast.loadtest.chaos.stack import Stack
from holdfast.loadtest.runs.figures import Outcome
from holdfast.loadtest.runs.plans import SCENARIOS, RunPlan
from holdfast.loadtest.runs.report import render, summarise
from holdfast.loadtest.runs.run import Result, play

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUICK_S = 3
BUYERS = 12


def quick_plan(name: str) -> RunPlan:
    """The scenario as it is, but small, short and hasty."""
    scenario = msgspec.structs.replace(SCENARIOS[name], duration_s=QUICK_S, seats=300, places=300)
    if scenario.users:
        scenario = msgspec.structs.replace(scenario, users=BUYERS)
    return RunPlan(name=name, scenario=scenario, think=0.05, tokens=500)


async def run(stack: Stack, plan: RunPlan, directory: Path, say: Callable[[str], None] = print) -> Result:
    return await play(stack, plan, directory, say, asyncio.Event())


def counts(result: Result) -> dict[Outcome, int]:
    return {total.outcome: total.count for total in result.figures.totals}


DOES: dict[str, Callable[[Result], bool]] = {
    "flash_sale": lambda result: counts(result)[Outcome.HOLD] > 0 and result.audit.sold > 0,
    "hot_seat": lambda result: counts(result)[Outcome.REFUSAL] > counts(result)[Outcome.HOLD] > 0,
    "best_available": lambda result: counts(result)[Outcome.BEST] > 0 and counts(result)[Outcome.HOLD] == 0,
    "general_admission": lambda result: counts(result)[Outcome.HOLD] > 0 and result.audit.tickets > result.audit.sold,
    "browse_and_buy": lambda result: result.figures.generator.live_messages > 0,
    "hold_and_abandon": lambda result: counts(result)[Outcome.BEST] > 0 and result.audit.sold == 0,
    "redis_outage": lambda result: {"redis", "db"} <= {sample.mode for sample in result.samples},
    "fallback_only": lambda result: {sample.mode for sample in result.samples} == {"db"},
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_short_run_does_what_its_name_says_and_is_true(name: str, load_stack: Stack, tmp_path: Path) -> None:
    result = await run(load_stack, quick_plan(name), tmp_path)

    assert result.audit.violations == (), summarise(result)
    assert counts(result)[Outcome.ERROR] == 0, result.figures.reasons
    assert result.audit.acknowledged > 0
    assert DOES[name](result), summarise(result)
    assert "The audit passed." in render(result)


async def test_an_outage_shows_who_was_put_off_and_that_holds_went_on(load_stack: Stack, tmp_path: Path) -> None:
    result = await run(load_stack, quick_plan("redis_outage"), tmp_path)

    killed, back = result.marks
    assert killed.at_s < back.at_s
    assert result.figures.generator.arrivals > 0
    # Then somebody held a seat after Redis was killed.
    over = result.figures.over_time
    after = int(killed.at_s / over.width_s) + 1
    assert sum(over.rates[Outcome.HOLD][after:]) + sum(over.rates[Outcome.BEST][after:]) > 0
    assert render(result).count('class="moment"') > 2


async def test_a_hold_that_a_buyer_was_promised_and_nobody_has_fails_the_audit(
    load_stack: Stack, tmp_path: Path
) -> None:
    promise = "00000000-0000-4000-8000-000000000001"

    def lie(_: str) -> None:
        # As soon as there is a history, it has a buyer in it who was told of a hold that never was.
        if (tmp_path / "history").exists():
            told = (Told(promise, 1_000.0, ("seat",)),)
            write_history(
                tmp_path / "history" / "calls-0.jsonl", [Call(1, Operation.HOLD, 0, 1.0, 1.1, 201, told=told)]
            )

    result = await run(load_stack, quick_plan("hot_seat"), tmp_path, lie)

    assert [violation.rule for violation in result.audit.violations] == [Rule.LOST_HOLD]
    assert promise in summarise(result)
    shown = render(result)
    assert "The audit failed." in shown
    assert promise in shown


async def test_locust_alone_can_run_a_scenario_against_an_address(load_stack: Stack, tmp_path: Path) -> None:
    arena = await load_stack.open_event(50, 50)
    command = [sys.executable, "-P", "-m", "locust", "-f", str(quick_plan("general_admission").locust_file)]
    command += ["--headless", "--host", load_stack.front_end_urls[0], "-u", "5", "-r", "5", "-t", "2s", "--think", "0"]
    command += ["--event", str(arena.event_id), "--history", str(tmp_path / "history")]
    environment = {**os.environ, **load_stack.settings().environment()}

    def start(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    # Given who buys, it runs, writes its history, and fails where it is slower than it may be;
    organization = ("--organization", str(arena.organization_id))
    done = await asyncio.to_thread(start, *organization, "--fail-over", "p50=0.001")
    assert done.returncode == 1, done.stderr
    assert "p50 is" in done.stderr
    assert len(list((tmp_path / "history").glob("calls-*.jsonl"))) == 1
    assert await load_stack.query("SELECT FROM seat_holds WHERE event_id = $1", arena.event_id)

    # without, it says what is missing.
    refused = await asyncio.to_thread(start)
    assert refused.returncode != 0
    assert "--token-file" in refused.stderr
