"""The publisher: brings committed domain events out, to pub/sub and to the configured webhook.

Both read the outbox at their own pace, so that neither waits for the other. Any number of publishers may run, on any
number of machines. An event's rows are delivered by one of them at a time, one row after the other, and a row is
tried until the receiver takes it. Should two deliver the same event after all, because a connection to Postgres broke
unseen, a receiver that leaves out the ids it has had still sees every row once and in order.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from holdfast.engine.settings import Settings
from holdfast.persistence.announcer import Announcer, announcing_redis
from holdfast.persistence.occupancy import OccupancyCache
from holdfast.persistence.outbox import Line, Pace, open_line
from holdfast.persistence.pool import POSTGRES_ERRORS
from holdfast.persistence.webhook import Receiver, message_of

# Numbers of advisory locks come in pairs; the first says what for.
DELIVERING = int.from_bytes(b"hfde")

_log = logging.getLogger(__name__)


async def publish(settings: Settings, pace: Pace | None = None, cache: OccupancyCache | None = None) -> None:
    """Publish until cancelled; servers that do not answer are tried again. A cache given learns every new count.

    Without a webhook, announcing is all that happens to a row. Rows that a webhook has not taken stay when it is no
    longer configured, until one is again.
    """
    pace = pace or Pace()
    async with asyncio.TaskGroup() as group:
        group.create_task(_announce(settings, pace, cache))
        if settings.webhook_url is not None:
            group.create_task(_deliver(settings, pace))


async def _announce(settings: Settings, pace: Pace, cache: OccupancyCache | None) -> None:
    final = settings.webhook_url is None
    async with announcing_redis(settings.redis_url) as redis:

        async def work(line: Line) -> None:
            await Announcer(line, redis, final=final, pace=pace, cache=cache).run()

        await _again_and_again(settings, "announcer", pace, work)


async def _deliver(settings: Settings, pace: Pace) -> None:
    assert settings.webhook_url is not None
    assert settings.webhook_secret is not None
    async with Receiver(
        settings.webhook_url, settings.webhook_secret, timeout_s=pace.timeout_s, connections=pace.events_at_once
    ) as receiver:

        async def work(line: Line) -> None:
            await Deliverer(line, receiver, pace).run()

        await _again_and_again(settings, "deliverer", pace, work)


async def _again_and_again(settings: Settings, name: str, pace: Pace, work: Callable[[Line], Awaitable[None]]) -> None:
    """Work over a new line whenever the last one broke."""
    while True:
        try:
            async with open_line(settings.postgres_dsn, name) as line:
                await work(line)
        except* POSTGRES_ERRORS as errors:
            _log.warning("the %s lost Postgres and tries again in %g s: %s", name, pace.poll_s, _first(errors))
        if _is_cancelled():
            # A group of tasks that fails while it cleans up after a cancellation tells of the failure only.
            raise asyncio.CancelledError
        await asyncio.sleep(pace.poll_s)


class Deliverer:
    """Posts the outbox to the receiver, several events side by side."""

    def __init__(self, line: Line, receiver: Receiver, pace: Pace) -> None:
        self._line = line
        self._receiver = receiver
        self._pace = pace
        self._clock = asyncio.get_running_loop().time
        self._busy: set[UUID] = set()
        self._elsewhere: dict[UUID, float] = {}

    async def run(self) -> None:
        """Deliver until cancelled. Raises what the line does, in a group."""
        async with asyncio.TaskGroup() as group:
            while True:
                room = self._pace.events_at_once - len(self._busy)
                for event_id in await self._due(room) if room else ():
                    self._busy.add(event_id)
                    group.create_task(self._work_off(event_id))
                await self._line.wait(self._pace.poll_s)

    async def _due(self, limit: int) -> list[UUID]:
        """Events that have something to deliver now, and that nobody is at."""
        now = self._clock()
        self._elsewhere = {event_id: until for event_id, until in self._elsewhere.items() if until > now}
        rows = await self._line.fetch("find_due_deliveries", [*self._busy, *self._elsewhere], limit)
        return [row["event_id"] for row in rows]

    async def _work_off(self, event_id: UUID) -> None:
        """Deliver an event's rows as its only publisher, then make room for another event."""
        try:
            if not await self._line.value("lock_deliveries", DELIVERING, event_id):
                # Another publisher is at it. Without a pause this one would ask again at once, and again.
                self._elsewhere[event_id] = self._clock() + self._pace.poll_s
                return
            try:
                await self._deliver(event_id)
            finally:
                await self._line.value("unlock_deliveries", DELIVERING, event_id)
        finally:
            self._busy.discard(event_id)
            self._line.wake()

    async def _deliver(self, event_id: UUID) -> None:
        """Deliver rows in order, up to the first that fails or is not due, and note what was taken."""
        rows = await self._line.fetch("take_deliveries", event_id, self._pace.deliveries)
        until = self._clock() + self._pace.note_s
        taken: list[int] = []
        try:
            for row in rows:
                if not row["due"] or self._clock() > until:
                    break
                failure = await self._receiver.post(message_of(row))
                if failure is not None:
                    await self._postpone(row, failure)
                    break
                taken.append(row["id"])
        finally:
            # Also when cancelled, so that a publisher that is told to stop leaves nothing to be repeated.
            if taken:
                await self._line.value("mark_delivered", taken)

    async def _postpone(self, row: Mapping[str, Any], failure: str) -> None:
        delay_s = self._pace.retry_delay_s(row["attempts"])
        await self._line.value("postpone_delivery", row["id"], delay_s)
        _log.warning(
            "the webhook's receiver has not taken %s %d of event %s at attempt %d, holding back what follows it: %s; "
            "next attempt in %.1f s",
            row["kind"],
            row["id"],
            row["event_id"],
            row["attempts"] + 1,
            failure,
            delay_s,
        )


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first of the errors that a group was made of."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
