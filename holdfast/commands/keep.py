"""`holdfast keep`: the keeper, which does the work that no request waits for."""

import argparse
import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvloop
from aiohttp import web

from holdfast.commands import add_log_format_flag, read_settings
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.http.app import create_metrics_app
from holdfast.http.server import GC_THRESHOLDS
from holdfast.jobs import JOBS, Job
from holdfast.logs import log_to_stderr
from holdfast.persistence.pool import POSTGRES_ERRORS, connect
from holdfast.ports import listen

if TYPE_CHECKING:
    from holdfast.commands import Commands

CANCEL_AGAIN_S = 0.5
AWAIT_S = 0.5

_log = logging.getLogger(__name__)


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "keep",
        help="run the keeper",
        description="Run the background jobs until SIGTERM or Ctrl-C. Any number of keepers may run at once. A server "
        "that is away, at the start or later, is tried until it is back.",
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
    # As in a front end: what a batch of the log is read into goes when it is committed, and leaves no cycles behind.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_keep(settings))


async def _keep(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving_metrics(settings):
        if await unless_stopped(await_postgres(settings.postgres_dsn), stop):
            await run_jobs(JOBS, settings, stop)


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do something that may take for ever. Whether it was done before `stop` was set, which ends it."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    await _end({task, stopped})
    if task in done:
        await task
    return stopped not in done


async def await_postgres(dsn: str) -> None:
    """Return when Postgres answers, without which no job can begin. Each obstacle is told once.

    Redis is not waited for: where it is away, there is work to be done in Postgres.
    """
    told = ""
    while True:
        try:
            connection = await connect(dsn, name="keeper")
            await connection.close(timeout=1)
            return
        except POSTGRES_ERRORS as error:
            obstacle = str(error) or type(error).__name__
            if obstacle != told:
                _log.warning("the keeper waits until Postgres can be used: %s", obstacle)
                told = obstacle
        await asyncio.sleep(AWAIT_S)


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
