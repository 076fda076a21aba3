"""Work that goes on beside a block of code."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def beside(*jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run jobs beside the block. One that ends by itself is a fault, and is written down as one."""
    tasks = [asyncio.create_task(job) for job in jobs]
    for task in tasks:
        task.add_done_callback(_complain)
    try:
        yield
    finally:
        while running := [task for task in tasks if not task.done()]:
            # Before Python 3.12 a client library can take a cancellation for a timeout, and go on.
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=1)


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background job failed", exc_info=error)
