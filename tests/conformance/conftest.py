"""Every test here runs on both backends."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
from conformance.halls import Hall, OpenHall, redis_hall, row_lock_hall


@pytest.fixture(params=["scripts", "row locks"])
def open_hall(request: pytest.FixtureRequest) -> OpenHall:
    """How to open a hall on each backend."""
    if request.param == "scripts":
        return partial(redis_hall, request.getfixturevalue("redis_url"))
    return partial(row_lock_hall, request.getfixturevalue("database_dsn"))


@pytest.fixture
async def hall(open_hall: OpenHall) -> AsyncIterator[Hall]:
    """The usual event: three rows of ten seats (zone 0) and a floor of fifty places (zone 1), without limits."""
    async with open_hall() as opened:
        yield opened
