"""What the hot caches of all front ends know, asked over Postgres, which is the one place where every process listens.

Nobody counts until somebody asks: a cache may have two hundred thousand seats, and is read for every hold.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec

from holdfast.engine.hot_cache import HotCache
from holdfast.persistence.ballot import FRONT_END, list_voters
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, Pool, borrowed
from holdfast.persistence.sql import query

ASK_CHANNEL = "holdfast_hot_ask"
TELL_CHANNEL = "holdfast_hot_tell"

# How long the front ends have to answer.
PATIENCE_S = 1.0

# A notification has less than eight thousand bytes, and an event takes up to about a hundred and fifty.
_EVENTS_AT_ONCE = 40

_log = logging.getLogger(__name__)


class HotEvent(msgspec.Struct, frozen=True, array_like=True):
    """Seats of an event that a cache calls taken."""

    event_id: UUID
    held: int
    sold: int
    blocked: int


class Told(msgspec.Struct, frozen=True):
    """A part of an answer, one of `parts`. `places` has shard, epoch and last entry of each log that is followed."""

    request: UUID
    front_end: str
    parts: int
    places: tuple[tuple[int, int, int], ...]
    events: tuple[HotEvent, ...]


class HotCounts(msgspec.Struct, frozen=True):
    """What one front end knows: how far it has followed each log, by shard and epoch, and events by their id."""

    front_end: str
    places: dict[tuple[int, int], int]
    events: dict[UUID, HotEvent]


_TOLD = msgspec.json.Decoder(Told)
_encode = msgspec.json.encode


class HotTeller:
    """What a front end does when it is asked."""

    def __init__(self, pool: Pool, front_end: str, cache: Callable[[], HotCache]) -> None:
        self._pool = pool
        self._front_end = front_end
        self._cache = cache
        self._answers: set[asyncio.Task[None]] = set()

    def hear(self, request: str) -> None:
        """Answer a question, which is known by its number."""
        answer = asyncio.create_task(self._answer(UUID(request)))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    async def _answer(self, request: UUID) -> None:
        places, seats = self._cache().snapshot()
        # Counted on the side, because holds do not wait for it.
        counted = await asyncio.to_thread(seats.count)
        events = tuple(HotEvent(UUID(int=event), *counts) for event, counts in counted.items())
        pages = [events[at : at + _EVENTS_AT_ONCE] for at in range(0, len(events), _EVENTS_AT_ONCE)] or [()]
        told = [_encode(Told(request, self._front_end, len(pages), places, page)).decode() for page in pages]
        try:
            async with borrowed(self._pool) as connection:
                await connection.execute(query("tell_hot_counts"), TELL_CHANNEL, told)
        except POSTGRES_ERRORS as error:
            _log.warning("what the hot cache knows cannot be told: %r", error)


async def ask_hot_counts(connection: Connection, *, patience_s: float = PATIENCE_S) -> tuple[HotCounts, ...]:
    """Ask every front end that is alive, and give them a moment. Whoever does not answer is missing."""
    asked = [voter.name for voter in await list_voters(connection) if voter.kind == FRONT_END]
    if not asked:
        return ()
    request, parts, complete = uuid4(), dict[str, list[Told]](), asyncio.Event()

    def hear(_: Any, __: int, ___: str, payload: str) -> None:
        told = _TOLD.decode(payload)
        if told.request == request:
            parts.setdefault(told.front_end, []).append(told)
            if all(name in parts and len(parts[name]) >= parts[name][0].parts for name in asked):
                complete.set()

    await connection.add_listener(TELL_CHANNEL, hear)
    try:
        await connection.execute(query("ask_hot_counts"), ASK_CHANNEL, str(request))
        try:
            async with asyncio.timeout(patience_s):
                await complete.wait()
        except TimeoutError:
            _log.debug("not every front end has said what its hot cache knows")
    finally:
        await connection.remove_listener(TELL_CHANNEL, hear)
    return tuple(_counts(name, told) for name, told in sorted(parts.items()) if len(told) >= told[0].parts)


def _counts(front_end: str, pages: Sequence[Told]) -> HotCounts:
    places = {(shard, epoch): seq for shard, epoch, seq in pages[0].places}
    return HotCounts(front_end, places, {event.event_id: event for page in pages for event in page.events})
