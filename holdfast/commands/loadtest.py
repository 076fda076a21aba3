"""`holdfast loadtest`: what happens at on-sale, with an audit of all that buyers were told."""

import argparse
import asyncio
import importlib.util
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import positive
from holdfast.errors import OperatorError
from holdfast.loadtest.runs.plans import SCENARIOS, RunPlan, Scenario
from holdfast.loadtest.runs.report import render, summarise
from holdfast.loadtest.runs.run import Result, open_load_stack, play
from holdfast.loadtest.thresholds import parse_thresholds

if TYPE_CHECKING:
    from holdfast.commands import Commands

DEFAULT_OUT = Path("loadtest-reports")


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    scenarios = "\n".join(f"  {name:18} {scenario.summary}" for name, scenario in SCENARIOS.items())
    parser = commands.add_parser(
        "loadtest",
        help="run a load-test scenario, audit it, and report",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starts servers, keeper and front end of its own in a temporary directory, opens an event, lets "
        "locust's buyers come,\nstops, compares everything they were told with what Postgres has, and writes a report "
        "as HTML and JSON.\nCtrl-C ends the traffic early; what there was is audited and reported. Ends with 1 if "
        "anything was untrue,\nor beyond --fail-over.\n\n"
        f"scenarios:\n{scenarios}",
        epilog="example: holdfast loadtest flash_sale --users 500 --duration 30 --fail-over p99=500,errors=1",
    )
    parser.add_argument("scenario", choices=SCENARIOS, metavar="SCENARIO", help="what to run, see above")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--users", type=positive, metavar="N", help="closed load: so many buyers at any time")
    load.add_argument("--arrivals-per-s", type=_number, metavar="R", help="open load: so many buyers come per second")
    parser.add_argument("--duration", type=positive, metavar="S", help="seconds of traffic")
    parser.add_argument("--seats", type=positive, metavar="N", help="seats of the event")
    parser.add_argument("--places", type=positive, metavar="N", help="places of its zone without seats")
    parser.add_argument(
        "--think", type=_number, default=1.0, metavar="F", help="multiplies the pauses of buyers (default: 1)"
    )
    parser.add_argument(
        "--processes", type=positive, default=1, metavar="N", help="locust processes (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", type=positive, default=1, metavar="N", help="front-end processes (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens", type=positive, default=20_000, metavar="N", help="buyers that there are (default: %(default)s)"
    )
    parser.add_argument(
        "--fail-over",
        type=parse_thresholds,
        default=(),
        metavar="LIMITS",
        help="fail beyond these: p50, p90, p95, p99 and max of holds in ms; errors and busy in percent of all calls",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help="where reports go (default: %(default)s)"
    )
    parser.add_argument("--keep-history", action="store_true", help="put every call beside the report, as JSON lines")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a summary")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run, report, and judge."""
    if importlib.util.find_spec("locust") is None:
        raise OperatorError("Load tests need locust: pip install 'holdfast[loadtest]'.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = asyncio.run(_play(_plan(arguments), arguments))
    stem = arguments.out / f"{result.plan.name}-{result.started_at[:19].replace(' ', '-').replace(':', '')}"
    encoded = msgspec.json.encode(result)
    stem.with_suffix(".json").write_bytes(encoded)
    stem.with_suffix(".html").write_text(render(result))
    print(encoded.decode() if arguments.json else summarise(result))
    _say(f"report: {stem.with_suffix('.html')}")
    if result.audit.violations:
        raise OperatorError(f"THE AUDIT FAILED: {len(result.audit.violations)} violations; the first is above.")
    if result.exceeded:
        raise OperatorError(" ".join(result.exceeded))
    if result.interrupted:
        raise KeyboardInterrupt


def _plan(arguments: argparse.Namespace) -> RunPlan:
    scenario: Scenario = SCENARIOS[arguments.scenario]
    if arguments.users:
        scenario = msgspec.structs.replace(scenario, users=arguments.users, arrivals_per_s=0.0)
    elif arguments.arrivals_per_s:
        scenario = msgspec.structs.replace(scenario, users=0, arrivals_per_s=arguments.arrivals_per_s)
    given = {"duration_s": arguments.duration, "seats": arguments.seats, "places": arguments.places}
    scenario = msgspec.structs.replace(scenario, **{name: value for name, value in given.items() if value})
    return RunPlan(
        name=arguments.scenario,
        scenario=scenario,
        processes=arguments.processes,
        think=arguments.think,
        tokens=arguments.tokens,
        fail_over=arguments.fail_over,
    )


async def _play(plan: RunPlan, arguments: argparse.Namespace) -> Result:
    """Play the plan on a stack of its own. A first signal ends the traffic, a second one everything."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end_traffic() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end_traffic)
    with tempfile.TemporaryDirectory(prefix="holdfast-loadtest-") as directory:
        _say("starting the servers")
        async with open_load_stack(arguments.workers) as stack:
            result = await play(stack, plan, Path(directory), _say, stop)
        if arguments.keep_history:
            kept = arguments.out / "history"
            kept.mkdir(exist_ok=True)
            for path in (Path(directory) / "history").iterdir():
                (kept / path.name).write_bytes(path.read_bytes())
    return result


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _number(text: str) -> float:
    number = float(text)
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError("must be above 0 and at most 86400")
    return number
