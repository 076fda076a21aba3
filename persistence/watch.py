"""Work in Postgres that may rightly take long, and must not wait for a server that answers nobody any more.

A limit on each statement cannot tell a large hall that is being saved from a server that is frozen. So somebody else
asks the server all the while, on a connection of their own: as long as they are answered, the work may go on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import asyncpg

from holdfast.engine.background import beside
from holdfast.engine.errors import Unavailable, Unknown
from holdfast.persistence.pool import POSTGRES_ERRORS, connect

# How often the server is asked, and how long it may take to answer.
ASK_S = 1.0
SILENCE_S = 3.0

# What a busy event loop is given to notice an answer that came in time.
_NOTICE_S = 0.5


class Ends(Protocol):
    """A connection, or a pool of them."""

    def terminate(self) -> None:
        """Close at once, whatever is under way."""


class Watch:
    """What is at work while the server is watched."""

    def __init__(self) -> None:
        self._at_work: list[Ends] = []
        self.silent = False

    def guard(self, at_work: Ends) -> None:
        """End this too when the server is silent, because to close it properly would take an answer."""
        self._at_work.append(at_work)

    def end(self) -> None:
        """Let nobody wait for an answer any longer."""
        self.silent = True
        for each in self._at_work:
            each.terminate()

    @property
    def has_begun(self) -> bool:
        """Whether anything may have been sent."""
        return bool(self._at_work)


@asynccontextmanager
async def unless_silent(dsn: str, *, ask_s: float = ASK_S, silence_s: float = SILENCE_S) -> AsyncIterator[Watch]:
    """Run the block for as long as Postgres answers others; then end it, and what it has the watch guard.

    Raises Unknown if the block had begun to use a connection by then, and Unavailable if it had not.
    """
    watch = Watch()
    try:
        async with asyncio.timeout(None) as limit, beside(_ask_on(dsn, limit, watch, ask_s, silence_s)):
            yield watch
    except POSTGRES_ERRORS as error:
        if not watch.silent:
            raise
        if watch.has_begun:
            raise Unknown("Postgres has stopped answering in the middle of the work") from error
        raise Unavailable("Postgres does not answer") from error


async def _ask_on(dsn: str, limit: asyncio.Timeout, watch: Watch, ask_s: float, silence_s: float) -> None:
    while True:
        await asyncio.sleep(ask_s)
        if not await _answers(dsn, silence_s):
            watch.end()
            limit.reschedule(asyncio.get_running_loop().time())
            return


async def _answers(dsn: str, silence_s: float) -> bool:
    """Whether Postgres says anything at all to somebody new. To be turned away is an answer too."""
    asked = asyncio.ensure_future(_ask(dsn))
    try:
        await asyncio.wait([asked], timeout=silence_s)
        # A loop that was busy sees answer and time-out at once.
        await asyncio.wait([asked], timeout=_NOTICE_S)
        return asked.done() and asked.result()
    finally:
        asked.cancel()


async def _ask(dsn: str) -> bool:
    try:
        connection = await connect(dsn, name="watch")
    except asyncpg.PostgresError:
        return True
    except POSTGRES_ERRORS:
        return False
    with suppress(*POSTGRES_ERRORS):
        await connection.close(timeout=1)
    return True
