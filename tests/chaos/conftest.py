"""A whole Holdfast, which the tests of a worker break and mend one after the other."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest_asyncio

from holdfast.loadtest.chaos.rounds import open_stack
from holdfast.loadtest.chaos.stack import Stack

SoundStack = Callable[[], Awaitable[Stack]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sound_stack() -> AsyncIterator[SoundStack]:
    """Gives the stack, or another one if the last test left it in disorder."""
    async with AsyncExitStack() as running:
        stacks: list[Stack] = []

        async def give() -> Stack:
            if not stacks or not await stacks[-1].is_in_order():
                await running.aclose()
                stacks.append(await running.enter_async_context(open_stack()))
            return stacks[-1]

        yield give
