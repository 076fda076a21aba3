"""`holdfast bench`: figures that can be repeated, each as a ratio within one run."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.commands import own_command, positive
from holdfast.commands.bench_servers import bench_servers
from holdfast.embedded import start_postgres, start_valkey
from holdfast.engine.settings import Settings
from holdfast.loadtest.baselines.ways import WayName
from holdfast.loadtest.bystanders import files_needed
from holdfast.loadtest.compare_bench import ROUNDS, CompareSize, describe, run_compare_bench
from holdfast.loadtest.fallback_bench import FallbackSize, run_fallback_bench
from holdfast.loadtest.http_bench import HttpSize, run_http_bench
from holdfast.loadtest.http_requests import make_event
from holdfast.loadtest.persist_bench import SHARDS, PersistSize, run_persist_bench
from holdfast.loadtest.scale_bench import ScaleFigures, ScaleSize, run_connections_bench, run_holds_bench
from holdfast.loadtest.script_bench import Size, run_script_bench
from holdfast.open_files import allow_open_files

if TYPE_CHECKING:
    from holdfast.commands import Commands

QUICK_SCRIPT = Size(seats=5_000, rounds=5, calls=200, wire_calls=3_000)
QUICK_HTTP = HttpSize(noops=1_000, durable=500, fast=500, refusals=1_000, rounds=2)
QUICK_COMPARE = CompareSize(noops=500, fast=300, durable=300, dual_write=200, row_lock=200, redis_only=300, rounds=2)
QUICK_PERSIST = PersistSize(drained=1_500, acknowledged=500, rounds=2)
QUICK_FALLBACK = FallbackSize(holds=400, refusals=400, alone=20, rounds=1)

QUICK_SCALE = ScaleSize(
    seats=2_000, small_seats=500, events=3, script_rounds=3, calls=100, idle=300, readers=20, holds=300, rounds=1
)


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
    script.set_defaults(run=run_script)
    persist = benchmarks.add_parser(
        "persist",
        help="what write-behind persistence costs",
        description="Measure the persister and the acknowledgement on embedded servers.",
        epilog="example: holdfast bench persist --json",
    )
    persist.set_defaults(run=run_persist)
    fallback = benchmarks.add_parser(
        "fallback",
        help="what holds cost while Redis is away",
        description="Measure holds under Postgres's row locks against holds in Redis, on embedded servers: every "
        "caller a seat of their own, and all of them one seat. Both are answered after the commit.",
        epilog="example: holdfast bench fallback --json",
    )
    fallback.set_defaults(run=run_fallback)
    http = benchmarks.add_parser(
        "http",
        help="what holding a seat over HTTP costs",
        description="Measure durable holds, holds acknowledged by Redis, and refusals of a hot seat, against an "
        "aiohttp endpoint that does nothing: one worker each, 64 connections, embedded servers, in turns.",
        epilog="example: holdfast bench http --json",
    )
    http.set_defaults(run=run_http)
    compare = benchmarks.add_parser(
        "compare",
        help="Holdfast against other ways to hold a seat, side by side",
        description="Measure durable holds and holds acknowledged by Redis against Postgres row locks alone, SET NX "
        "followed by a Postgres transaction, redis-py's evalsha with no persistence, and an aiohttp endpoint that does "
        "nothing: the same checks, one process each, 64 connections, the same servers, in turns. "
        "Ratios are taken within each round.",
        epilog="example: holdfast bench compare --json",
    )
    compare.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help="rounds (default: %(default)s)")
    compare.set_defaults(run=run_compare)
    scale = benchmarks.add_parser(
        "scale",
        help="what a hold costs when there are many",
        description="Measure a hold in an event of 1,000 and of 100,000 seats, and in a server with a million live "
        "holds against an empty one; and durable holds over HTTP while 10,000 idle connections and 1,000 readers of "
        "the event's live feed are open, against the same without them, in turns. Takes about 1 GB of memory and "
        "11,300 open files in two processes.",
        epilog="example: holdfast bench scale --json",
    )
    scale.set_defaults(run=run_scale)
    for benchmark in (script, persist, fallback, http, compare, scale):
        benchmark.add_argument("--json", action="store_true", help="print the figures as JSON")
        benchmark.add_argument(
            "--quick", action="store_true", help="a small run, to see that it works; its figures mean little"
        )


def run_script(arguments: argparse.Namespace) -> None:
    """Measure on a server of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        server = start_valkey(Path(directory) / "valkey")
        try:
            figures = run_script_bench(server.url, QUICK_SCRIPT if arguments.quick else Size(), _progress)
        finally:
            server.stop()
    _print(figures, as_json=arguments.json)


def run_persist(arguments: argparse.Namespace) -> None:
    """Measure on servers and with a keeper of its own, all gone afterwards."""
    size = QUICK_PERSIST if arguments.quick else PersistSize()
    with _both_servers() as (redis_url, postgres_dsn, start_keeper):
        figures = run_persist_bench(redis_url, postgres_dsn, start_keeper, size, _progress)
    _print(figures, as_json=arguments.json)


def run_fallback(arguments: argparse.Namespace) -> None:
    """Measure on servers and with a keeper of its own, all gone afterwards."""
    size = QUICK_FALLBACK if arguments.quick else FallbackSize()
    with _both_servers() as (redis_url, postgres_dsn, start_keeper):
        figures = run_fallback_bench(redis_url, postgres_dsn, start_keeper, size, _progress)
    _print(figures, as_json=arguments.json)


@contextmanager
def _both_servers() -> Iterator[tuple[str, str, Callable[[], Callable[[], None]]]]:
    """An embedded Valkey and an embedded Postgres, and how to start a keeper on them; all of it gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        valkey = start_valkey(Path(directory) / "valkey")
        try:
            postgres = start_postgres(Path(directory) / "postgres")
            try:
                settings = Settings(redis_url=valkey.url, postgres_dsn=postgres.url, shards=SHARDS)
                yield valkey.url, postgres.url, _keeper(settings)
            finally:
                postgres.stop()
        finally:
            valkey.stop()


def run_http(arguments: argparse.Namespace) -> None:
    """Measure on servers and processes of its own, all gone afterwards."""
    size = QUICK_HTTP if arguments.quick else HttpSize()
    event = make_event(size.seats)
    with bench_servers() as servers:
        settings, noop_port = servers.start_holdfast(event), servers.start_noop()
        figures = run_http_bench(settings, noop_port, event, size, pids=servers.pids, report=_progress)
    _print(figures, as_json=arguments.json)


def run_compare(arguments: argparse.Namespace) -> None:
    """Measure on servers and processes of its own, all gone afterwards."""
    size = QUICK_COMPARE if arguments.quick else CompareSize(rounds=arguments.rounds)
    event = make_event(size.seats)
    with bench_servers() as servers:
        settings = servers.start_holdfast(event)
        ports = {"noop": servers.start_noop()} | {way.value: servers.start_baseline(way, event) for way in WayName}
        comparison = run_compare_bench(settings, ports, event, size, _progress)
    print(msgspec.json.encode(comparison).decode() if arguments.json else describe(comparison))


def run_scale(arguments: argparse.Namespace) -> None:
    """Measure on servers and processes of its own, all gone afterwards."""
    size = QUICK_SCALE if arguments.quick else ScaleSize()
    # Before anything is started, which then may have as many open.
    allow_open_files(files_needed(size.idle, size.readers))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory, ExitStack() as running:
        empty = start_valkey(Path(directory) / "empty")
        running.callback(empty.stop)
        crowded = start_valkey(Path(directory) / "crowded")
        running.callback(crowded.stop)
        holds = run_holds_bench(empty.url, crowded.url, size, _progress)
    event = make_event(size.http_seats)
    with bench_servers() as servers:
        settings = servers.start_holdfast(event)
        connections = run_connections_bench(settings, event, size, pids=servers.pids, report=_progress)
    _print(ScaleFigures(holds, connections), as_json=arguments.json)


def _keeper(settings: Settings) -> Callable[[], Callable[[], None]]:
    """How to start a keeper with these settings, which returns how to stop it."""

    def start() -> Callable[[], None]:
        process = subprocess.Popen(own_command("keep"), env=os.environ | settings.environment())

        def stop() -> None:
            process.terminate()
            process.wait()

        return stop

    return start


def _progress(text: str) -> None:
    print(text, file=sys.stderr)


def _print(figures: msgspec.Struct, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(figures).decode())
        return
    values = dict(_flat(msgspec.to_builtins(figures)))
    width = max(map(len, values))
    print("\n".join(f"{name:<{width}}  {value:>14,.2f}" for name, value in values.items()))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Figures within figures, each under the names that lead to it."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield prefix + name, value
