"""A server of its own for a test that needs one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers import OwnServer


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[OwnServer]:
    server = OwnServer(tmp_path / "valkey")
    try:
        yield server
    finally:
        server.stop()
