"""The servers every script is tried on: the worker's Valkey, and a Redis where there is one on PATH."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.embedded import start_valkey
from support.engine import Stage
from support.scripts import audited

REDIS_SERVER = shutil.which("redis-server")
SERVERS = ["redis_url", "other_redis_url"] if REDIS_SERVER else ["redis_url"]


@pytest.fixture(scope="session")
def other_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the worker's Redis answers. It lives as long as the worker, whichever server the next test wants."""
    assert REDIS_SERVER is not None
    server = start_valkey(tmp_path_factory.mktemp("redis") / "redis", executable=Path(REDIS_SERVER))
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture(params=SERVERS, ids=["valkey", "redis"][: len(SERVERS)])
def server_url(request: pytest.FixtureRequest) -> str:
    """Each server in turn."""
    url = request.getfixturevalue(request.param)
    assert isinstance(url, str)
    return url


@pytest.fixture
async def on(server_url: str) -> AsyncIterator[Stage]:
    """The usual event: three rows of ten seats (zone 0) and a floor of fifty places (zone 1), without limits."""
    async with audited(server_url) as opened:
        yield opened
