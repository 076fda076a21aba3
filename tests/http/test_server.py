"""How the server treats connections that do not speak HTTP, or take their time, and what it writes down."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.settings import Settings
from holdfast.http.app import create_app
from holdfast.http.tokens import Role, mint_token
from holdfast.ports import LOOPBACK, available_port
from support.front_end import SECRET

# A server that has little patience. It says where it is.
PROGRAM = """
from aiohttp import web
from holdfast.engine.settings import LogFormat
from holdfast.http import server
from holdfast.logs import log_to_stderr
from holdfast.ports import LOOPBACK, listen

log_to_stderr(LogFormat.JSON)
server.KEEP_ALIVE_SECONDS = 0.5
with listen(LOOPBACK, 0) as listener:
    print(listener.getsockname()[1], flush=True)
    server.run_server(web.Application(), listener)
"""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """A server in a process of its own."""

    def __init__(self, port: int, stderr: Path) -> None:
        self.port = port
        self._stderr = stderr

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    @property
    def lines(self) -> list[str]:
        return self._stderr.read_text().splitlines()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    stderr = tmp_path / "stderr"
    with stderr.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", PROGRAM), stdout=asyncio.subprocess.PIPE, stderr=out
        )
    assert process.stdout is not None
    try:
        yield Server(int(await process.stdout.readline()), stderr)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        await process.wait()


async def test_headers_that_never_end_do_not_keep_a_connection(server: Server) -> None:
    async with asyncio.timeout(60), server.connected() as (reader, writer):
        ended = asyncio.ensure_future(reader.read())
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait([ended], timeout=0.05)

        with suppress(ConnectionError):
            assert await ended == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad\x00Name: x\r\n\r\n", b" 400 "),
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", b" 404 "),
    ],
    ids=["a header", "a body"],
)
async def test_a_malformed_request_is_one_line(server: Server, request_bytes: bytes, status: bytes) -> None:
    async with asyncio.timeout(60), server.connected() as (reader, writer):
        writer.write(request_bytes)
        assert status in (await reader.read()).partition(b"\r\n")[0]

    (line,) = server.lines
    written = msgspec.json.decode(line)
    assert (written["level"], written["logger"]) == ("warning", "aiohttp.server")
    assert written["message"].startswith("malformed request: ")
    assert "exception" not in written


@asynccontextmanager
async def front_end_without_stores() -> AsyncIterator[TestClient]:
    settings = Settings(
        redis_url=f"redis://{LOOPBACK}:{available_port(LOOPBACK)}/0",
        postgres_dsn=f"postgresql://nobody@{LOOPBACK}:{available_port(LOOPBACK)}/nothing",
        token_secret=SECRET,
    )
    token = mint_token(settings, user_id=uuid4(), organization_id=uuid4(), role=Role.CUSTOMER, ttl_seconds=600)
    async with TestClient(TestServer(create_app(settings)), headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


async def test_what_is_not_the_client_s_fault_is_one_line_with_the_request(caplog: pytest.LogCaptureFixture) -> None:
    async with front_end_without_stores() as client:
        with caplog.at_level(logging.INFO, "holdfast.http.endpoints"):
            path = f"/api/events/{uuid4()}/seats/{uuid4()}/reserve"
            async with client.post(path, headers={"X-Request-ID": "broken-1"}) as response:
                assert response.status == 503

    (record,) = [each for each in caplog.records if each.name == "holdfast.http.endpoints"]
    said = record.getMessage()
    assert said.startswith("POST /api/events/{event}/seats/{seat}/reserve answered 503 unavailable after ")
    assert said.endswith(" ms, request broken-1")
    assert vars(record)["request_id"] == "broken-1"


async def test_nothing_is_written_down_of_good_requests_and_of_bad_ones(caplog: pytest.LogCaptureFixture) -> None:
    async with front_end_without_stores() as client:
        with caplog.at_level(logging.INFO, "holdfast.http.endpoints"):
            for path, status in (("/healthz", 200), ("/api/events/nonsense", 400), ("/nothing", 404)):
                async with client.get(path) as response:
                    assert response.status == status

    assert [each for each in caplog.records if each.name == "holdfast.http.endpoints"] == []
