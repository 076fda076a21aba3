"""Waiting for what must become true, without guessing how long it takes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

DEADLINE_S = 20.0


async def eventually(condition: Callable[[], Any | Awaitable[Any]], what: str, within_s: float = DEADLINE_S) -> Any:
    """Poll until the condition, which may be a coroutine function, is truthy; return its value."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(0.005)
