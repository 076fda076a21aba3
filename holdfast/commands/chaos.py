"""`holdfast chaos`: break things while buyers buy, and check all that they were told."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import positive
from holdfast.errors import OperatorError
from holdfast.loadtest.chaos.faults import FAULTS
from holdfast.loadtest.chaos.rounds import QUICK_RECOVERY, Plan, Round, play

if TYPE_CHECKING:
    from holdfast.commands import Commands


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    faults = "\n".join(f"  {name:22} {fault.summary}" for name, fault in FAULTS.items())
    parser = commands.add_parser(
        "chaos",
        help="break servers and connections under load, and check the promises",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starts servers, keepers and front ends of its own in a temporary directory, lets buyers hold, "
        "extend,\nrelease and pay, breaks something, waits until service is back, and checks everything the buyers "
        "were told.\nEnds with 1 and the first violation with the calls around it if anything was untrue.\n\n"
        f"faults:\n{faults}",
        epilog="example: holdfast chaos --fault kill-redis --seed 7 --duration 5 --rounds 3",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--fault", choices=FAULTS, metavar="NAME", help="the fault to try")
    which.add_argument("--all", action="store_true", help="try every fault")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="what the first round begins with (default: 1)"
    )
    parser.add_argument(
        "--duration", type=_seconds, default=4.0, metavar="S", help="seconds of traffic around the fault (default: 4)"
    )
    parser.add_argument("--rounds", type=positive, default=1, metavar="N", help="rounds of each fault (default: 1)")
    parser.add_argument(
        "--default-settings",
        action="store_true",
        help="let Redis prove itself for as long as the default settings say before it serves again, not for 0.5 s",
    )
    parser.add_argument("--history", type=Path, metavar="DIR", help="write every round's calls there, as JSON lines")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Play the rounds, say how each went, and sum up."""
    if arguments.history:
        arguments.history.mkdir(parents=True, exist_ok=True)
    faults = list(FAULTS) if arguments.all else [arguments.fault]
    plans = [
        Plan(
            fault=fault,
            seed=seed,
            duration_s=arguments.duration,
            history=arguments.history / f"{fault}-{seed}.jsonl" if arguments.history else None,
        )
        for fault in faults
        for seed in range(arguments.seed, arguments.seed + arguments.rounds)
    ]
    variables: Mapping[str, str] = {} if arguments.default_settings else QUICK_RECOVERY
    rounds = asyncio.run(play(plans, lambda line: print(line, file=sys.stderr, flush=True), variables))
    print(msgspec.json.encode(rounds).decode() if arguments.json else table(rounds))
    violations = sum(len(played.violations) for played in rounds)
    if violations:
        raise OperatorError(f"{violations} violations in {len(rounds)} rounds.")


def table(rounds: list[Round]) -> str:
    """A line per fault, as Markdown."""
    lines = [
        "| fault | rounds | acknowledged holds | sales | violations | worst time without a hold |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fault in dict.fromkeys(played.fault for played in rounds):
        of_fault = [played for played in rounds if played.fault == fault]
        lines.append(
            f"| {fault} | {len(of_fault)} | {sum(each.acknowledged for each in of_fault)} "
            f"| {sum(each.sold for each in of_fault)} | {sum(len(each.violations) for each in of_fault)} "
            f"| {max(each.unavailable_s for each in of_fault):.1f} s |"
        )
    return "\n".join(lines)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be from 1 to 3600")
    return seconds
