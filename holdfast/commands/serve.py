"""`holdfast serve`: the front end."""

import argparse
import logging
import os
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import add_log_format_flag, own_command, positive, read_settings
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.http.app import create_app
from holdfast.http.server import run_server
from holdfast.logs import log_to_stderr
from holdfast.open_files import allow_open_files
from holdfast.ports import http_url, listen, reserve
from holdfast.processes import Process, spawn, until_stopped

if TYPE_CHECKING:
    from holdfast.commands import Commands

# A worker that dies is started again, unless so many die in so short a time that something is wrong with all of them.
DEATHS_MAX = 5
DEATHS_WITHIN_S = 60.0

_log = logging.getLogger(__name__)


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "serve",
        help="run the front end",
        description="Serve the HTTP API until SIGTERM or Ctrl-C; open requests are finished first. Of several "
        "workers, one that dies is started again.",
        epilog="example: holdfast serve --port 8080 --workers 2",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (HOLDFAST_HOST, default 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="port, 0 for any free one (HOLDFAST_PORT, default 8080)")
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="processes on the port (default: 1)")
    add_log_format_flag(parser)
    # Only for the children of a process that has reserved the port.
    parser.add_argument("--reuse-port", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--numbers-dir", type=Path, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Serve with one process, or watch over several that do."""
    settings = read_settings(host=arguments.host, port=arguments.port, log_format=arguments.log_format)
    log_to_stderr(settings.log_format)
    if arguments.reuse_port:
        _serve(settings, arguments.numbers_dir)
        return
    with reserve(settings.host, settings.port) as reserved:
        settings = msgspec.structs.replace(settings, port=reserved.getsockname()[1])
        if arguments.workers == 1:
            _serve(settings)
        else:
            _supervise(settings, arguments.workers)


def _serve(settings: Settings, numbers_dir: Path | None = None) -> None:
    # Every connection is one, and many systems begin with fewer than an on-sale has buyers.
    allow_open_files()
    with listen(settings.host, settings.port, reuse_port=True) as listener:
        # In one piece: workers write to the same place, and an unbuffered print writes the end of a line by itself.
        print(f"Serving on {http_url(settings.host, settings.port)}\n", end="", flush=True)
        run_server(create_app(settings, numbers_dir=numbers_dir), listener)


def _supervise(settings: Settings, workers: int) -> None:
    environment = {**os.environ, **settings.environment()}
    with until_stopped() as watch, ExitStack() as running:
        # Where workers write what they count, so that each can answer for all of them, the dead included.
        numbers_dir = running.enter_context(TemporaryDirectory(prefix="holdfast-numbers-"))
        command = own_command("serve", "--reuse-port", "--numbers-dir", numbers_dir)

        def start(name: str) -> Process:
            worker = spawn(name, command, environment=environment)
            running.callback(worker.stop)
            return worker

        processes = [start(f"worker {number}") for number in range(1, workers + 1)]
        deaths: deque[float] = deque(maxlen=DEATHS_MAX)
        while True:
            dead = watch.await_death(processes)
            deaths.append(time.monotonic())
            if len(deaths) == DEATHS_MAX and deaths[-1] - deaths[0] < DEATHS_WITHIN_S:
                raise OperatorError(
                    f"{dead.obituary()}, the last of {DEATHS_MAX} that ended within {DEATHS_WITHIN_S:.0f} seconds."
                )
            _log.error("%s; it is started again", dead.obituary())
            processes[processes.index(dead)] = start(dead.name)
