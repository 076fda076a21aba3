"""One multiplexed connection to a Redis server, for the calls that must be fast.

Any number of coroutines share the connection: a call is one packed command, its answer a future, and what is
written within one turn of the event loop leaves in one piece. Answers come in order, so the oldest waiting call
tells whether the server stalls. The wire reconnects by itself; what was under way when a connection broke is
Unknown, what could not be sent is Unavailable.
"""

import asyncio
import contextlib
import random
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Self, cast

import hiredis
from redis.asyncio.connection import parse_url

from holdfast.engine.errors import Fenced, Overloaded, ScriptFault, Unavailable, Unknown

_RECONNECT_FIRST_S = 0.02
_RECONNECT_MAX_S = 1.0
_WATCH_S = 0.1

# Error codes after which nothing was written, by what they mean for the caller.
_REFUSALS: dict[str, type[Unavailable]] = {
    "OOM": Overloaded,
    "BUSY": Overloaded,
    "LOADING": Unavailable,
    "MASTERDOWN": Unavailable,
    "CLUSTERDOWN": Unavailable,
    "TRYAGAIN": Unavailable,
    "READONLY": Fenced,
    "NOREPLICAS": Unavailable,
    "MISCONF": Unavailable,
    "NOAUTH": Unavailable,
    "WRONGPASS": Unavailable,
}


class NoScript(Unavailable):
    """The server does not know the script: it restarted, was promoted, or is older than this release."""


class Wire:
    """A connection that many callers share. Use as an async context manager."""

    def __init__(self, url: str, *, timeout_s: float = 2.0, max_waiting: int = 20_000) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._max_waiting = max_waiting
        self._connection: _Connection | None = None
        self._connections = 0
        self._keeper: asyncio.Task[None] | None = None
        self._first_attempt = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep_connected(), name="wire")
        await self._first_attempt.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        self._drop(Unknown("the wire was closed"))

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed.done()

    @property
    def connections(self) -> int:
        """How many connections there have been: as long as it is the same, one incarnation of the server answers."""
        return self._connections

    @property
    def waiting(self) -> int:
        """Calls that have been sent and not answered."""
        return len(self._connection.waiting) if self._connection else 0

    def send(self, command: bytes) -> asyncio.Future[Any]:
        """Send one packed command. Fails at once when there is no connection or too many calls wait."""
        connection = self._connection
        # A connection is lost a few turns of the loop before the keeper gets to know.
        if connection is None or connection.closed.done():
            raise Unavailable("there is no connection to Redis")
        if len(connection.waiting) >= self._max_waiting:
            raise Overloaded(f"{self._max_waiting} calls wait for Redis")
        return connection.send(command)

    def start(self, *words: bytes | str | int | float) -> asyncio.Future[Any]:
        """Send one command given as words, for what is not worth packing beforehand."""
        return self.send(_pack(words))

    async def call(self, *words: bytes | str | int | float) -> Any:
        """Send one command given as words, and wait for its answer."""
        return await self.start(*words)

    async def _keep_connected(self) -> None:
        pause = _RECONNECT_FIRST_S
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    connection = await _connect(self._url)
                self._connection, pause = connection, _RECONNECT_FIRST_S
                self._connections += 1
                self._first_attempt.set()
                await self._watch(connection)
            except (OSError, TimeoutError, Unavailable, Unknown, ScriptFault):
                self._first_attempt.set()
            self._connection = None
            # The jitter keeps front ends from knocking all at once on a server that has just come back.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret depends on it
            pause = min(pause * 2, _RECONNECT_MAX_S)

    async def _watch(self, connection: "_Connection") -> None:
        """Return when the connection is gone; cut it when the oldest call has waited too long."""
        loop = asyncio.get_running_loop()
        while not connection.closed.done():
            await asyncio.wait([connection.closed], timeout=min(_WATCH_S, self._timeout_s / 4))
            if connection.waiting and loop.time() - connection.waiting[0][1] > self._timeout_s:
                self._drop(Unknown(f"Redis did not answer within {self._timeout_s} s"))

    def _drop(self, reason: Exception) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop(reason)


class _Connection(asyncio.Protocol):
    """One TCP or Unix connection: packs writes of one loop turn, matches answers to calls in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._outgoing: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def send(self, command: bytes) -> asyncio.Future[Any]:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(command)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.waiting.append((answer, self._loop.time()))
        return answer

    def drop(self, reason: Exception) -> None:
        """Close at once; every waiting call ends with the reason."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are write transports in all but their class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(Unknown(f"the connection to Redis broke: {exc or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self.waiting
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                answer, _ = waiting.popleft()
                if answer.done():
                    continue
                if isinstance(reply, hiredis.ReplyError):
                    answer.set_exception(_error(reply))
                else:
                    answer.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.drop(Unknown(f"Redis answered what nobody asked: {error}"))

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def _fail(self, reason: Exception) -> None:
        waiting, self.waiting = self.waiting, deque()
        for answer, _ in waiting:
            if not answer.done():
                answer.set_exception(reason)
                # A caller that has gone away must not turn into a warning about an exception nobody looked at.
                answer.exception()
        if not self.closed.done():
            self.closed.set_result(None)


def _error(reply: hiredis.ReplyError) -> Exception:
    text = str(reply)
    code = text.partition(" ")[0]
    if code == "NOSCRIPT":
        return NoScript(text)
    refusal = _REFUSALS.get(code)
    return refusal(text) if refusal else ScriptFault(text)


def _pack(words: tuple[bytes | str | int | float, ...]) -> bytes:
    # The annotation of hiredis speaks of a tuple of one word.
    return cast(bytes, hiredis.pack_command(cast(Any, words)))


async def _connect(url: str) -> _Connection:
    """Connect as a Redis URL says, including its credentials and database."""
    options = parse_url(url)
    loop = asyncio.get_running_loop()
    make: Callable[[], _Connection] = _Connection
    if "path" in options:
        _, connection = await loop.create_unix_connection(make, options["path"])
    else:
        context = ssl.create_default_context() if url.startswith("rediss://") else None
        host, port = options.get("host", "localhost"), options.get("port", 6379)
        _, connection = await loop.create_connection(make, host, port, ssl=context)
    words: list[tuple[bytes | str | int | float, ...]] = []
    if password := options.get("password"):
        words.append(("AUTH", options.get("username") or "default", password))
    if database := options.get("db"):
        words.append(("SELECT", database))
    words.append(("CLIENT", "SETNAME", "holdfast"))
    try:
        await asyncio.gather(*(connection.send(_pack(command)) for command in words))
    except BaseException:
        connection.drop(Unavailable("the connection to Redis could not be set up"))
        raise
    return connection
