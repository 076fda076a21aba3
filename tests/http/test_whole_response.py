"""Responses that leave in one piece say on the wire what HTTP wants of them."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from holdfast.http.whole_response import WholeResponse
from holdfast.ports import LOOPBACK

HEADERS = {"X-Request-ID": "r-1"}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that answers everything with as many bytes as the path says."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return WholeResponse(409, b"x" * int(request.match_info["size"]), "text/plain", HEADERS)

    app = web.Application()
    app.router.add_route("*", "/{size}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def test_the_head_has_status_type_length_date_and_the_other_headers(port: int) -> None:
    head, body = await ask(port, b"GET /5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert head[0] == "HTTP/1.1 409 Conflict"
    assert {"Content-Type: text/plain", "Content-Length: 5", "X-Request-ID: r-1"} <= set(head)
    assert any(re.fullmatch(r"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", line) for line in head)
    assert body == b"xxxxx"


async def test_head_is_answered_without_the_body(port: int) -> None:
    head, body = await ask(port, b"HEAD /5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert "Content-Length: 5" in head
    assert body == b""


async def test_a_connection_ends_and_says_so_when_the_client_wants_that(port: int) -> None:
    for request in (b"GET /5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"GET /5 HTTP/1.0\r\n\r\n"):
        head, _ = await ask(port, request)

        assert "Connection: close" in head


async def test_an_old_client_is_told_that_its_connection_stays(port: int) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    for _ in range(2):
        writer.write(b"GET /5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: keep-alive\r\n" in head
        assert await reader.readexactly(5) == b"xxxxx"
    writer.close()


async def ask(port: int, request: bytes) -> tuple[list[str], bytes]:
    """The lines of the head, and the body up to the end of the connection."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(request)
    head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    writer.close()
    return head.decode().split("\r\n"), body
