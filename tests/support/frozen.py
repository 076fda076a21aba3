"""Servers that are there and do not move: the kernel still takes what is sent to them, and no answer comes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.embedded import Server


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """A server and all its processes, stopped for the duration of the block."""
    # The one that makes the others comes first, so that none is missed.
    stopped = [server.pid]
    try:
        os.kill(server.pid, signal.SIGSTOP)
        for pid in _children(server.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return children
