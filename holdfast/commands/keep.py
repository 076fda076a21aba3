"""`holdfast keep`: the keeper, which does the work that no request waits for."""

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvloop
from aiohttp import web

from holdfast.commands import add_log_format_flag, read_settings
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.http.app import create_metrics_app
from holdfast.jobs import JOBS, Job
from holdfast.logs import log_to_stderr
from holdfast.ports import listen

if TYPE_CHECKING:
    from holdfast.commands import Commands

CANCEL_AGAIN_S = 0.5


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "keep",
        help="run the keeper",
        description="Run the background jobs until SIGTERM or Ctrl-C. Any number of keepers may run at once.",
        epilog="example: HOLDFAST_REDIS_URL=redis://127.0.0.1:6379/0 holdfast keep --metrics-port 9100",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="N",
        help="serve /metrics on this port of HOLDFAST_HOST (HOLDFAST_METRICS_PORT, default: nowhere)",
    )
    add_log_format_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Keep until told to stop."""
    settings = read_settings(metrics_port=arguments.metrics_port, log_format=arguments.log_format)
    log_to_stderr(settings.log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_keep(settings))


async def _keep(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving_metrics(settings):
        await run_jobs(JOBS, settings, stop)


@asynccontextmanager
async def serving_metrics(settings: Settings) -> AsyncIterator[None]:
    """Serve `/metrics` for the duration of the block, if a port is named for it."""
    if settings.metrics_port is None:
        yield
        return
    with listen(settings.host, settings.metrics_port) as listener:
        runner = web.AppRunner(create_metrics_app(settings), access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield
        finally:
            await runner.cleanup()


async def run_jobs(jobs: Mapping[str, Job], settings: Settings, stop: asyncio.Event) -> None:
    """Run the jobs side by side until `stop` is set. The first that ends before raises an OperatorError.

    Either way every job has been cancelled, and has finished its own clean-up, when this returns.
    """
    tasks = [asyncio.ensure_future(_forever(name, job, settings)) for name, job in jobs.items()]
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end({stopped, *tasks})
    for task in done - {stopped}:
        await task


async def _end(tasks: set[asyncio.Future[Any]]) -> None:
    """Cancel tasks until they have ended: a client library may take a cancellation for a timeout, and go on."""
    while tasks:
        for task in tasks:
            task.cancel()
        ended, tasks = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
        # Looked at, or the loop complains of exceptions nobody saw; the one that matters is raised by the caller.
        await asyncio.gather(*ended, return_exceptions=True)


async def _forever(name: str, job: Job, settings: Settings) -> None:
    try:
        await job(settings)
    except Exception as error:
        raise OperatorError(f"The background job {name} failed: {error!r}.") from error
    raise OperatorError(f"The background job {name} ended by itself.")
