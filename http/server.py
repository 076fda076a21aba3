"""Running an application on a socket until a signal says stop."""

import gc
import logging
import socket

import uvloop
from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.log import server_logger

from holdfast.ports import BACKLOG

# How long open requests may take to finish after a stop signal.
SHUTDOWN_TIMEOUT_SECONDS = 10.0

# A connection on which nothing is asked for so long is closed, whatever part of a request has come.
KEEP_ALIVE_SECONDS = 75.0


# Requests leave no cycles behind to speak of, and an event of a hundred thousand seats is long to look through.
GC_THRESHOLDS = (50_000, 50, 100)


def run_server(app: web.Application, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT: no new connections from then on, what is under way is finished."""

    async def close(_: web.Application) -> None:
        # The loop listens on a copy; while this one is open the kernel takes connections that nobody will answer.
        listener.close()

    app.on_shutdown.append(close)
    server_logger.addFilter(in_one_line)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    web.run_app(
        app,
        sock=listener,
        # aiohttp listens once more, and would leave room for 128: whoever comes when that is full is not answered, and
        # tries again after 1, 3, 7 and 15 seconds.
        backlog=BACKLOG,
        print=None,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS,
        loop=uvloop.new_event_loop(),
    )


def in_one_line(record: logging.LogRecord) -> bool:
    """Requests that are no HTTP say nothing about this program: one line each, and no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | web.RequestPayloadError):
        said = error.message if isinstance(error, HttpProcessingError) else " ".join(str(error).split())
        record.msg, record.args = "malformed request: %s", (said.partition("\n")[0].strip(" :"),)
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
    return True
