"""Responses that leave in one piece.

aiohttp's own response keeps its headers in a dictionary, fills in what is missing and writes them out, which took a
fifth of the time of a refusal. Here the head is written as text at once.
"""

import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus

from aiohttp import HttpVersion10, hdrs, web
from aiohttp.abc import AbstractStreamWriter

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class WholeResponse(web.StreamResponse):
    """A response whose body is there. It has the type, the length and the date by itself; `headers` are the others."""

    def __init__(self, status: int, body: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(status=status)
        self.body = body
        self.media_type = media_type
        self._others = headers
        self._alive = True

    @property
    def keep_alive(self) -> bool:
        return self._alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send everything. Raises ConnectionResetError if there is nobody to send it to."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone away")
        self._alive = request.keep_alive
        head = self._head(request)
        transport.write(head + self.body if request.method != hdrs.METH_HEAD else head)
        if transport.get_write_buffer_size():
            # Whoever reads slowly is not given more before they have taken this.
            await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to be sent."""

    def _head(self, request: web.BaseRequest) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in self._others.items()])
        if not self._alive:
            lines += "Connection: close\r\n"
        elif request.version == HttpVersion10:
            lines += "Connection: keep-alive\r\n"
        return (
            f"{_STATUS_LINES[self.status]}Content-Type: {self.media_type}\r\nContent-Length: {len(self.body)}\r\n"
            f"Date: {_date.now()}\r\n{lines}\r\n"
        ).encode("latin-1")


class _Date:
    """The date as HTTP writes it, written once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


_date = _Date()
