"""An event's changes after their commit, for those who show them live: what was announced, and the seats it led to.

Postgres is the source, not pub/sub. What is heard there is only that there is something new; what that is comes from
the outbox by its position. So a follower that was away, or that missed a notification, asks for what came after the
last position it knows, and nothing is lost or told twice. It goes on while Redis is away, which is when people
look at what is left.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from holdfast.persistence.fence import frozen
from holdfast.persistence.occupancy import Figures, Occupancy, occupancy
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, Pool, SingleQueries, borrowed, connect
from holdfast.persistence.sql import query

FEED_CHANNEL = "holdfast_feed"

# What everybody calls a row of the outbox, by its kind.
EVENTS = {
    "SeatReserved": "seat_held",
    "SeatReleased": "seat_released",
    "SeatSold": "seat_sold",
    "SeatsBlocked": "seats_blocked",
    "SeatsUnblocked": "seats_unblocked",
    "CompanionsDeclined": "companions_declined",
}

_ASK_S = 5.0
_RETRY_S = 0.2

_log = logging.getLogger(__name__)


class Places(msgspec.Struct, frozen=True):
    """A number of places in a zone, which is named by its index."""

    zone: int
    quantity: int


class Payload(msgspec.Struct, frozen=True):
    """What of an outbox row is for everybody. Users, sales and tickets are not."""

    event_id: str
    timestamp: str
    hold_id: str | None = None
    seat_ids: tuple[str, ...] = ()
    quantities: tuple[Places, ...] = ()
    reason: str | None = None


class Change(msgspec.Struct, frozen=True):
    """One change: its place in the feed, what everybody calls it, and what is known of it."""

    position: int
    event: str
    payload: Payload


class FeedState(msgspec.Struct, frozen=True):
    """An event's seats at a position of its feed, a letter each in the order of the layout, and how full it is.

    `declined` are the wheelchair seats whose buyers do not want the companion seats.
    """

    position: int
    map: bytes
    totals: Figures
    declined: frozenset[str] = frozenset()


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What followers hear: that an event has changed, and how full it is now."""

    organization_id: UUID
    event_id: UUID
    capacity: int
    held: int
    sold: int
    blocked: int
    free: int
    wheelchair: int = 0
    companion: int = 0
    kept: int = 0

    @property
    def totals(self) -> Figures:
        return Figures.of(
            capacity=self.capacity,
            held=self.held,
            sold=self.sold,
            blocked=self.blocked,
            free=self.free,
            wheelchair=self.wheelchair,
            companion=self.companion,
            kept=self.kept,
        )


read_payload = msgspec.json.Decoder(Payload).decode
_read_told = msgspec.json.Decoder(Told).decode


def told_of(counted: Occupancy) -> str:
    """The message for followers about an event that was just counted."""
    total = counted.total
    told = Told(
        counted.organization_id,
        counted.event_id,
        total.capacity,
        total.held,
        total.sold,
        total.blocked,
        total.free,
        total.wheelchair,
        total.companion,
        total.kept,
    )
    return msgspec.json.encode(told).decode()


class Feed:
    """Reads the feeds of events."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def state(self, organization_id: UUID, event_id: UUID) -> FeedState:
        """An event as it is now. Changes after its position make it whatever the event becomes."""
        async with borrowed(self._pool) as connection, frozen(connection):
            row = await connection.fetchrow(query("read_feed_map"), organization_id, event_id)
            counted = await occupancy(connection, organization_id, event_id)
        return FeedState(row["position"], row["map"].encode(), counted.total, frozenset(row["declined"]))

    async def changes(self, organization_id: UUID, event_id: UUID, *, after: int, limit: int) -> Sequence[Change]:
        """The first changes after a position. A row that no persister has written changes no seat."""
        rows = await SingleQueries(self._pool).fetch(query("read_feed"), organization_id, event_id, after, limit)
        return [Change(row["position"], EVENTS[row["kind"]], _payload(row)) for row in rows]


async def follow_feed(dsn: str, hear: Callable[[Told], None], catch_up: Callable[[], None]) -> None:
    """Say what changes until cancelled, over every loss of the connection.

    `catch_up` is called whenever notifications may have been missed, and now and then in case one was: ask for all that
    matters then.
    """
    while True:
        try:
            connection = await connect(dsn, name="feed")
            try:
                await _listen(connection, hear, catch_up)
            finally:
                await connection.close(timeout=1)
        except POSTGRES_ERRORS as error:
            _log.warning("cannot hear what changes, live views stand still until it works again: %s", error)
        await asyncio.sleep(_RETRY_S)


async def _listen(connection: Connection, hear: Callable[[Told], None], catch_up: Callable[[], None]) -> None:
    """Listen until the connection is lost."""
    lost = asyncio.Event()

    def heard(_: Any, __: int, ___: str, payload: str) -> None:
        hear(_read_told(payload))

    connection.add_termination_listener(lambda _: lost.set())
    await connection.add_listener(FEED_CHANNEL, heard)
    while not lost.is_set():
        catch_up()
        # A connection that died without a word is noticed by asking.
        await connection.execute("SELECT 1")
        with suppress(TimeoutError):
            async with asyncio.timeout(_ASK_S):
                await lost.wait()


def _payload(row: Any) -> Payload:
    try:
        return read_payload(row["payload"])
    except msgspec.DecodeError as error:
        _log.error("position %d of the feed cannot be read: %s", row["position"], error)
        return Payload("", "")
