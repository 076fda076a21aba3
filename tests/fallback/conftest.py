"""A server per test that may be killed, and the shards on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.fallback import Fallback, Valkey, fallback


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    yield server
    server.stop()


@pytest.fixture
async def shards(valkey: Valkey, database_dsn: str) -> AsyncIterator[Fallback]:
    async with fallback(valkey.url, database_dsn) as under_test:
        yield under_test
