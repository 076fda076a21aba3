"""A TCP proxy on 127.0.0.1 that misbehaves on demand: what a network does to a connection, this does too."""

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit, urlunsplit

LOOPBACK = "127.0.0.1"
READ_BYTES = 65_536


class _Direction:
    """One way through the proxy: what happens to the bytes that take it."""

    def __init__(self) -> None:
        self.passes = asyncio.Event()
        self.passes.set()
        self.loses = False


class Proxy:
    """Stands between a client and the server of `url`. Use as an async context manager; clients connect to `.url`.

    Everything can be changed while connections are open. `delay_s` is added to every piece of bytes, a piece being at
    most `piece_bytes` long.
    """

    def __init__(self, url: str, *, delay_s: float = 0.0, piece_bytes: int = READ_BYTES) -> None:
        self.delay_s = delay_s
        self.piece_bytes = piece_bytes
        self._upstream = urlsplit(url)
        self._requests = _Direction()
        self._answers = _Direction()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._accepts = True
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        self.cut()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The server's URL with the proxy's address in it."""
        credentials, at, _ = self._upstream.netloc.rpartition("@")
        return urlunsplit(self._upstream._replace(netloc=f"{credentials}{at}{LOOPBACK}:{self._port}"))

    @property
    def connections(self) -> int:
        """Connections that are open through the proxy."""
        return len(self._connections)

    def redirect(self, url: str) -> None:
        """Lead new connections to another server."""
        self._upstream = urlsplit(url)

    def cut(self) -> None:
        """Break every open connection at once. New ones are accepted."""
        for writers in self._connections.values():
            for writer in writers:
                writer.transport.abort()

    def go_down(self) -> None:
        """Break every connection, and each new one as soon as it comes, until `come_up`."""
        self._accepts = False
        self.cut()

    def come_up(self) -> None:
        self._accepts = True

    def stall(self) -> None:
        """Keep connections open and pass nothing on, either way, until `flow`."""
        self._requests.passes.clear()
        self._answers.passes.clear()

    def stall_answers(self) -> None:
        """Pass requests on and keep the answers back, until `flow`."""
        self._answers.passes.clear()

    def half_open(self) -> None:
        """Swallow everything, as when the other end has vanished without a word, until `flow`."""
        self._requests.loses = self._answers.loses = True

    def flow(self) -> None:
        """Behave again. What was stalled is passed on; what was swallowed is lost."""
        for direction in (self._requests, self._answers):
            direction.loses = False
            direction.passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._connections[task] = [writer]
        try:
            if self._accepts:
                await self._connect(reader, writer, writers)
        except (OSError, asyncio.CancelledError):
            # A handler that ends by being cancelled would be reported as an error by the server.
            pass
        finally:
            del self._connections[task]
            for each in writers:
                each.transport.abort()

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writers: list[asyncio.StreamWriter]
    ) -> None:
        upstream = self._upstream
        answers, requests = await asyncio.open_connection(upstream.hostname, upstream.port, limit=READ_BYTES)
        writers.append(requests)
        pumps = [
            asyncio.ensure_future(self._pump(reader, requests, self._requests)),
            asyncio.ensure_future(self._pump(answers, writer, self._answers)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, direction: _Direction) -> None:
        """Pass bytes on until either end is gone."""
        with contextlib.suppress(OSError):
            while data := await source.read(self.piece_bytes):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await direction.passes.wait()
                if not direction.loses:
                    target.write(data)
                    await target.drain()
