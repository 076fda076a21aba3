"""Connections that are only there: some keep theirs alive, others read an event's live feed.

They have a process of their own, so that what they cost is not taken for the latency of somebody's hold. It is told
what to open in a line of JSON, says when all of it is open, is told how many changes every reader must get, and says
what each got: `Bystanders` is the other end of that conversation.
"""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import msgspec
import uvloop

from holdfast.open_files import allow_open_files
from holdfast.ports import LOOPBACK

OPENERS = 64
OPEN_S = 120.0
READ_S = 60.0
RETURN_S = 0.5
# What a process has open besides the connections it is here for.
OTHER_FILES = 256

_OK = b"HTTP/1.1 200 "
_HELD = b'"seat_held"'
_END = b"event: end\n"
_ID = b"\nid: "

Message = TypeVar("Message", bound=msgspec.Struct)


class Plan(msgspec.Struct, frozen=True):
    """What to open: idle connections, and readers of a path, all with the same token."""

    port: int
    idle: int
    readers: int
    path: str
    token: str


class Opened(msgspec.Struct, frozen=True):
    """Everything is open."""

    seconds: float


class Expect(msgspec.Struct, frozen=True):
    """How many seats were held since everything was opened."""

    changes: int


class Seen(msgspec.Struct, frozen=True):
    """What came of it.

    `idle_answered` are idle connections that were still open in the end, and answered; `readers_complete` readers who
    were told of every seat exactly once. `readers_returned` counts how often one was let go, or refused, and came back.
    `last_at` is when the last reader had the last change, on the clock of the machine.
    """

    idle_answered: int
    readers_complete: int
    readers_returned: int
    fewest_changes: int
    most_changes: int
    feed_bytes: int
    last_at: float


class Bystanders:
    """Connections held open by another process."""

    def __init__(self, process: Process, plan: Plan) -> None:
        self._process = process
        self._plan = plan
        self.pid = process.pid

    async def open(self) -> Opened:
        """Return once every connection has been answered, and every reader has a snapshot."""
        await self._say(self._plan)
        return await self._hear(Opened)

    async def leave(self, changes: int) -> Seen:
        """Wait until every reader was told of so many seats, or for a minute; then close everything."""
        await self._say(Expect(changes))
        return await self._hear(Seen)

    async def _say(self, message: msgspec.Struct) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        await self._process.stdin.drain()

    async def _hear(self, kind: type[Message]) -> Message:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the bystanders ended; what it said is above")
        return msgspec.json.decode(line, type=kind)


@asynccontextmanager
async def bystanders(plan: Plan) -> AsyncIterator[Bystanders]:
    """Bystanders for the duration of the block."""
    command = [sys.executable, "-P", "-m", "holdfast.loadtest.bystanders"]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield Bystanders(process, plan)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def files_needed(idle: int, readers: int) -> int:
    """How many files the process of so many bystanders, or the server that they are at, has open."""
    return idle + readers + OTHER_FILES


class _Connection(asyncio.Protocol):
    """Something on which requests are sent and bytes come back."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Idle(_Connection):
    """Asks something small when it comes, and again before it goes."""

    def __init__(self) -> None:
        super().__init__()
        self._answer = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        # So small an answer comes in one piece.
        if not self._answer.done():
            self._answer.set_result(data.startswith(_OK))

    async def ask(self, request: bytes) -> bool:
        """Whether there is a good answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        await asyncio.wait([self._answer, self.closed], timeout=READ_S, return_when=asyncio.FIRST_COMPLETED)
        return self._answer.done() and self._answer.result()


class _Stream(_Connection):
    """One connection of a reader: whole messages go to the reader, whatever pieces they come in."""

    def __init__(self, reader: "_Reader") -> None:
        super().__init__()
        self._reader = reader
        self._received = b""
        self._answered = False

    def data_received(self, data: bytes) -> None:
        if not self._answered:
            self._answered = True
            if not data.startswith(_OK):
                self.close()
                return
        received = self._received + data if self._received else data
        end = received.rfind(b"\n\n") + 2
        if end > 1:
            self._received = received[end:]
            if not self._reader.hear(received[:end]):
                # The server keeps the connection for whatever else its client may want.
                self.close()
        else:
            self._received = received


class _Reader:
    """Counts the seats it is told of, and comes back where it was when it is let go."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._position = b""
        self.begun = asyncio.get_running_loop().create_future()
        self.progress = asyncio.Event()
        self.changes = self.returned = self.bytes = 0
        self.last_at = 0.0

    async def run(self) -> None:
        """Read until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            stream = _Stream(self)
            await loop.create_connection(lambda stream=stream: stream, LOOPBACK, self._plan.port)  # type: ignore[misc]
            try:
                stream.send(_get(self._plan, self._plan.path, self._position))
                await stream.closed
            finally:
                stream.close()
            self.returned += 1
            await asyncio.sleep(RETURN_S)

    def hear(self, messages: bytes) -> bool:
        """Take in some messages, and say whether there will be more. What HTTP puts between them does not matter."""
        self.bytes += len(messages)
        if (at := messages.rfind(_ID)) >= 0:
            self._position = messages[at + len(_ID) : messages.index(b"\n", at + len(_ID))]
        if not self.begun.done() and b"event: snapshot\n" in messages:
            self.begun.set_result(None)
        if found := messages.count(_HELD):
            self.changes += found
            self.last_at = time.time()
            self.progress.set()
        return _END not in messages

    async def until(self, changes: int) -> None:
        """Return once it was told of so many seats."""
        while self.changes < changes:
            self.progress.clear()
            await self.progress.wait()


async def _stand_by() -> None:
    plan = await _told(Plan)
    allow_open_files(files_needed(plan.idle, plan.readers))
    health = _get(plan, "/healthz")
    began = time.monotonic()
    idle, readers = [_Idle() for _ in range(plan.idle)], [_Reader(plan) for _ in range(plan.readers)]
    reading = [asyncio.create_task(reader.run()) for reader in readers]

    async def come(connection: _Idle) -> None:
        await asyncio.get_running_loop().create_connection(lambda: connection, LOOPBACK, plan.port)
        if not await connection.ask(health):
            raise RuntimeError("a connection that was just opened was not answered")

    async with asyncio.timeout(OPEN_S):
        await _some_at_a_time(come, idle)
        for reader, task in zip(readers, reading, strict=True):
            await asyncio.wait([reader.begun, task], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
    _tell(Opened(time.monotonic() - began))

    expected = (await _told(Expect)).changes
    await asyncio.wait([asyncio.create_task(_all_of(readers, expected))], timeout=READ_S)
    answered: list[bool] = []

    async def go(connection: _Idle) -> None:
        answered.append(not connection.closed.done() and await connection.ask(health))
        connection.close()

    await _some_at_a_time(go, idle)
    changes = [reader.changes for reader in readers] or [0]
    _tell(
        Seen(
            idle_answered=sum(answered),
            readers_complete=sum(reader.changes == expected for reader in readers),
            readers_returned=sum(reader.returned for reader in readers),
            fewest_changes=min(changes),
            most_changes=max(changes),
            feed_bytes=sum(reader.bytes for reader in readers),
            last_at=max((reader.last_at for reader in readers), default=0.0),
        )
    )
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def _all_of(readers: list[_Reader], changes: int) -> None:
    for reader in readers:
        await reader.until(changes)


async def _some_at_a_time(what: Callable[[_Idle], Awaitable[None]], connections: list[_Idle]) -> None:
    """Do something with every connection: with all of them at once it would be a flood, and one by one it is slow."""
    waiting: Iterator[_Idle] = iter(connections)

    async def some() -> None:
        for connection in waiting:
            await what(connection)

    await asyncio.gather(*(some() for _ in range(OPENERS)))


def _get(plan: Plan, path: str, position: bytes = b"") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nAuthorization: Bearer {plan.token}\r\n".encode()
    return head + (b"Last-Event-ID: %b\r\n" % position if position else b"") + b"\r\n"


async def _told(kind: type[Message]) -> Message:
    return msgspec.json.decode(await asyncio.to_thread(sys.stdin.buffer.readline), type=kind)


def _tell(message: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_stand_by())
