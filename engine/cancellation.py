"""Making sure that a task that was told to stop does stop."""

import asyncio


def honour_cancellation() -> None:
    """Raise CancelledError if this task has been cancelled and something has swallowed it.

    `asyncio.wait_for` does that before Python 3.12 when what it waits for ends in the same turn of the loop, and
    redis-py sends every command with it. A loop around redis-py calls this once a turn.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
