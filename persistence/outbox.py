"""The connection that a publisher works through, and the pace it works at."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from holdfast.persistence.persister import OUTBOX_CHANNEL
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, connect
from holdfast.persistence.sql import query

_CLOSE_TIMEOUT_S = 1.0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often, how long and how much at once.

    `round_s` is the least time from one announcement of what little there is to the next, so that counting a large
    event never becomes all that Postgres does. Deliveries are noted after `note_s` at the latest: that many seconds of
    them are repeated if a publisher dies.
    """

    poll_s: float = 1.0
    round_s: float = 0.1
    note_s: float = 1.0
    timeout_s: float = 5.0
    retry_first_s: float = 1.0
    retry_max_s: float = 300.0
    announcements: int = 1_000
    deliveries: int = 200
    events_at_once: int = 16

    def retry_delay_s(self, failures: int) -> float:
        """How long to wait after that many failures of one delivery before this one."""
        # The exponent is bounded because a receiver that is gone for good is tried forever.
        longest = min(self.retry_max_s, self.retry_first_s * 2.0 ** min(failures, 30))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it


class Line:
    """One connection that several tasks take turns on.

    The locks by which publishers keep out of each other's way belong to its session. A publisher that has lost them has
    lost the connection, so it cannot note anything either.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()

    async def fetch(self, name: str, *arguments: object) -> Any:
        """The rows of a query, by the name of its file."""
        return await self._query(self._connection.fetch, name, arguments)

    async def value(self, name: str, *arguments: object) -> Any:
        """The first value of a query's first row."""
        return await self._query(self._connection.fetchval, name, arguments)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Connection]:
        """The connection, for as long as the block lasts."""
        async with self._turn:
            yield self._connection

    def wake(self, *_: object) -> None:
        """End the current or next wait at once."""
        self._woken.set()

    async def wait(self, seconds: float) -> None:
        """Wait until woken, by a commit to the outbox for example, or until the time has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _query(self, call: Any, name: str, arguments: tuple[object, ...]) -> Any:
        async with self._turn:
            return await call(query(name), *arguments)


@asynccontextmanager
async def open_line(dsn: str, name: str) -> AsyncIterator[Line]:
    """A line that commits to the outbox wake. Its locks are gone when the block ends."""
    connection = await connect(dsn, name=name)
    try:
        await connection.execute(query("set_keepalives"))
        line = Line(connection)
        await connection.add_listener(OUTBOX_CHANNEL, line.wake)
        yield line
    finally:
        # A connection that does not even close ends with its socket.
        with contextlib.suppress(*POSTGRES_ERRORS):
            await connection.close(timeout=_CLOSE_TIMEOUT_S)
