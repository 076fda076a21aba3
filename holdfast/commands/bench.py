"""`holdfast bench`: figures that can be repeated, each as a ratio within one run."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.embedded import start_valkey
from holdfast.loadtest.script_bench import ScriptFigures, Size, run_script_bench

if TYPE_CHECKING:
    from holdfast.commands import Commands

QUICK = Size(seats=5_000, rounds=5, calls=200, wire_calls=3_000)


def add_parser(commands: "Commands") -> None:
    """Declare the command and its benchmarks."""
    parser = commands.add_parser(
        "bench", help="measure Holdfast on this machine", epilog="example: holdfast bench script --json"
    )
    benchmarks = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    script = benchmarks.add_parser(
        "script",
        help="what the Lua scripts cost",
        description="Measure the scripts on an embedded Valkey: server time, memory, the reaper, the wire.",
        epilog="example: holdfast bench script --json",
    )
    script.add_argument("--json", action="store_true", help="print the figures as JSON")
    script.add_argument(
        "--quick", action="store_true", help="a small run, to see that it works; its figures mean little"
    )
    script.set_defaults(run=run_script)


def run_script(arguments: argparse.Namespace) -> None:
    """Measure on a server of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        server = start_valkey(Path(directory) / "valkey")
        try:
            figures = run_script_bench(server.url, QUICK if arguments.quick else Size(), _progress)
        finally:
            server.stop()
    print(msgspec.json.encode(figures).decode() if arguments.json else _table(figures))


def _progress(text: str) -> None:
    print(text, file=sys.stderr)


def _table(figures: ScriptFigures) -> str:
    values = msgspec.structs.asdict(figures)
    width = max(map(len, values))
    return "\n".join(f"{name:<{width}}  {value:>14,.2f}" for name, value in values.items())
