"""Tells what has changed in an event and how full it is now, after the change is committed.

One announcer works at a time, for all events and in the order of the outbox; the others wait for its session to end. It
gives every row its position in the feed, which front ends follow in Postgres, and then tells pub/sub. That is
fire-and-forget: what Redis does not take is not repeated, and only one line in the log says so. What nobody listens for
is not sent either: who subscribes later reads a snapshot then, which includes it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from holdfast.persistence.feed import EVENTS, FEED_CHANNEL, Places, read_payload, told_of
from holdfast.persistence.occupancy import Occupancy, OccupancyCache, Scope, channel_of, occupancies
from holdfast.persistence.outbox import Line, Pace

# Numbers of advisory locks come in pairs; the first says what for.
ANNOUNCING = int.from_bytes(b"hfan")

_REDIS_TIMEOUT_S = 1.0

# Between so many messages the loop belongs to others: in a keeper, to the persister, for which callers wait.
_SENT_AT_ONCE = 50

_log = logging.getLogger(__name__)


class Announcement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message on an event's channel. The totals are those of the moment it is sent, `timestamp` is when it happened.

    `id` grows with every message of an event, so that a subscriber can tell one it has had.
    """

    id: int
    event: str
    event_id: str
    hold_id: str | None = None
    seat_ids: tuple[str, ...]
    quantities: tuple[Places, ...]
    reason: str | None = None
    total_capacity: int
    total_available: int
    total_held: int
    total_sold: int
    total_blocked: int
    percent_available: float
    percent_held: float
    percent_sold: float
    percent_blocked: float
    timestamp: str


_encode = msgspec.json.Encoder().encode


def announcement_of(row: Mapping[str, Any], occupancy: Occupancy) -> Announcement:
    """The message for an outbox row. Raises msgspec.DecodeError for one that no persister has written."""
    payload, total = read_payload(row["payload"]), occupancy.total
    return Announcement(
        id=row["id"],
        event=EVENTS[row["kind"]],
        event_id=payload.event_id,
        hold_id=payload.hold_id,
        seat_ids=payload.seat_ids,
        quantities=payload.quantities,
        reason=payload.reason,
        total_capacity=total.capacity,
        total_available=total.free,
        total_held=total.held,
        total_sold=total.sold,
        total_blocked=total.blocked,
        percent_available=total.percent_free,
        percent_held=total.percent_held,
        percent_sold=total.percent_sold,
        percent_blocked=total.percent_blocked,
        timestamp=payload.timestamp,
    )


def announcing_redis(url: str) -> Redis:
    """A client that never repeats: a message sent twice is worse than one not sent.

    It has no time limit of its own, because redis-py's, on Python 3.11, can swallow a cancellation: the publisher would
    then not stop when told to.
    """
    return Redis.from_url(url, socket_timeout=None, retry=Retry(NoBackoff(), 0))


class Announcer:
    """Announces every row of the outbox. Where there is no webhook, that is all, and `final` says so."""

    def __init__(
        self, line: Line, redis: Redis, *, final: bool, pace: Pace, cache: OccupancyCache | None = None
    ) -> None:
        self._line = line
        self._redis = redis
        self._final = final
        self._pace = pace
        self._cache = cache
        self._redis_answers = True

    async def run(self) -> None:
        """Announce until cancelled. Raises what the line does."""
        clock = asyncio.get_running_loop().time
        while not await self._line.value("lock_announcements", ANNOUNCING):
            await self._line.wait(self._pace.poll_s)
        while True:
            began = clock()
            if await self.announce() < self._pace.announcements:
                await self._line.wait(self._pace.poll_s)
                await asyncio.sleep(max(0.0, began + self._pace.round_s - clock()))

    async def announce(self) -> int:
        """Announce the oldest rows that wait, a batch at most; returns how many."""
        waiting = {
            (row["organization_id"], row["event_id"]): row["ids"]
            for row in await self._line.fetch("take_announcements", self._pace.announcements)
        }
        rows = [number for numbers in waiting.values() for number in numbers]
        if rows:
            async with self._line.turn() as connection:
                counts = await occupancies(connection, waiting)
            if self._cache is not None:
                for occupancy in counts.values():
                    self._cache.put(occupancy)
            told = [told_of(occupancy) for occupancy in counts.values()]
            await self._line.value("mark_announced", rows, self._final, FEED_CHANNEL, told)
            # Last, because a Redis that hangs must not hold up those who follow the feed.
            await self._send(waiting, counts)
        return len(rows)

    async def _send(self, waiting: Mapping[Scope, Sequence[int]], counts: Mapping[Scope, Occupancy]) -> None:
        try:
            async with asyncio.timeout(_REDIS_TIMEOUT_S):
                heard = await self._heard(waiting)
            if heard:
                rows = await self._line.fetch("read_announcements", [row for scope in heard for row in waiting[scope]])
                async with asyncio.timeout(_REDIS_TIMEOUT_S):
                    for first in range(0, len(rows), _SENT_AT_ONCE):
                        await self._publish(rows[first : first + _SENT_AT_ONCE], counts)
        except (RedisError, OSError, TimeoutError) as error:
            if self._redis_answers:
                _log.warning("Redis takes no announcements, live views stand still until it does: %s", error)
            self._redis_answers = False
        else:
            if not self._redis_answers:
                _log.info("Redis takes announcements again")
            self._redis_answers = True

    async def _heard(self, scopes: Iterable[Scope]) -> Sequence[Scope]:
        """Those of the events that somebody may listen for.

        A server knows of its own subscribers by channel. It cannot know who listens by a pattern, at a replica, or at
        another node of a cluster: then it may be every one of them.
        """
        channels = {channel_of(*scope).encode(): scope for scope in scopes}
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.pubsub_numsub(*channels)
            pipeline.pubsub_numpat()
            pipeline.info("replication", "cluster")
            counts, patterns, server = await pipeline.execute()
        if patterns or server["connected_slaves"] or server["cluster_enabled"]:
            return list(channels.values())
        return [channels[channel] for channel, subscribers in counts if subscribers]

    async def _publish(self, rows: Iterable[Mapping[str, Any]], counts: Mapping[Scope, Occupancy]) -> None:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for row in rows:
                scope = row["organization_id"], row["event_id"]
                try:
                    message = _encode(announcement_of(row, counts[scope]))
                except msgspec.DecodeError as error:
                    _log.error("row %d of the outbox cannot be announced: %s", row["id"], error)
                    continue
                pipeline.publish(channel_of(*scope), message)
            await pipeline.execute()
