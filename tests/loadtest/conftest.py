"""A whole Holdfast on which the tests of a worker play scenarios one after the other."""

from collections.abc import AsyncIterator

import pytest_asyncio

from holdfast.loadtest.chaos.rounds import QUICK_RECOVERY
from holdfast.loadtest.chaos.stack import Stack
from holdfast.loadtest.runs.run import open_load_stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def load_stack() -> AsyncIterator[Stack]:
    async with open_load_stack(1, QUICK_RECOVERY) as stack:
        yield stack
