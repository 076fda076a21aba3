"""A load generator that costs little: requests are packed beforehand, replies are counted and not decoded."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

_STATUS = slice(9, 12)
_LENGTH = b"content-length: "


class Load(msgspec.Struct, frozen=True):
    """What a round of requests met. Times in milliseconds; `busy` is the share of a core the generator took."""

    per_s: float
    latencies_ms: tuple[float, ...]
    statuses: dict[str, int]
    busy: float


async def generate(host: str, port: int, requests: Iterable[bytes], connections: int) -> Load:
    """Send the requests over some connections, each the next as soon as its last was answered."""
    loop = asyncio.get_running_loop()
    waiting, tally = iter(requests), _Tally()
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: _Client(waiting, tally), host, port)
        clients.append(client)
    started, cpu = time.perf_counter(), time.process_time()
    for client in clients:
        client.send_next()
    await asyncio.gather(*(client.done for client in clients))
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    statuses = {status.decode(): count for status, count in tally.statuses.items()}
    return Load(len(tally.latencies_ms) / elapsed, tuple(tally.latencies_ms), statuses, used / elapsed)


class _Tally:
    def __init__(self) -> None:
        self.latencies_ms: list[float] = []
        self.statuses: dict[bytes, int] = {}


class _Client(asyncio.Protocol):
    """One connection, with one request under way at a time."""

    def __init__(self, requests: Iterator[bytes], tally: _Tally) -> None:
        self._requests = requests
        self._tally = tally
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the server closed the connection: {exc}"))

    def send_next(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received = received = self._received + data if self._received else data
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        at = received.lower().find(_LENGTH, 0, head_end) + len(_LENGTH)
        length = int(received[at : received.find(b"\r", at)])
        if len(received) < head_end + 4 + length:
            return
        tally, status = self._tally, received[_STATUS]
        tally.latencies_ms.append((time.perf_counter() - self._sent_at) * 1000)
        tally.statuses[status] = tally.statuses.get(status, 0) + 1
        self._received = b""
        self.send_next()
