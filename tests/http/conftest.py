"""A front end for each test."""

from collections.abc import AsyncIterator

import pytest

from holdfast.engine.policy import AckRule
from support.front_end import FrontEnd, serving


@pytest.fixture
async def front(redis_url: str, database_dsn: str) -> AsyncIterator[FrontEnd]:
    """A front end that serves the usual event, with seats 'A-1' to 'C-10' and a floor of 50."""
    async with serving(redis_url, database_dsn) as front:
        yield front


@pytest.fixture
async def still(redis_url: str, database_dsn: str) -> AsyncIterator[FrontEnd]:
    """The same, answering as soon as Redis has decided and with nothing that persists: only requests change Redis."""
    async with serving(redis_url, database_dsn, persist=False, ack=AckRule.REDIS) as front:
        yield front
