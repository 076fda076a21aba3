"""Waiting until what Redis decided is committed.

A reply of a backend names its position in its shard's log. The persister commits the log in order and tells how far it
came; whoever waits for a position at or below that mark is answered, all those of a commit at once.
"""

import asyncio
from collections import OrderedDict
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count

from holdfast.engine.backend import Position
from holdfast.engine.errors import Uncommitted
from holdfast.engine.status import Status

_REMEMBERED_REJECTIONS = 10_000

# How often somebody looks who has waited too long. A timer for each of them would cost more than the rest of the wait.
_LOOK_S = 0.1


class Ack(StrEnum):
    """What a caller waits for: the commit in Postgres, or only the decision in Redis."""

    POSTGRES = "postgres"
    REDIS = "redis"


# The epoch and number that are waited for, the order of arrival, so that nothing after it is ever compared, until when,
# and how to tell.
_Waiting = tuple[int, int, int, float, asyncio.Future[None]]


class Acks:
    """The marks of all shards, and those who wait for them."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._marks: dict[tuple[int, int], int] = {}
        self._over: dict[int, int] = {}
        self._waiting: dict[int, list[_Waiting]] = {}
        self._looking = False
        self._order = count()
        self._rejections: OrderedDict[tuple[int, int, int], Status] = OrderedDict()

    def mark(self, shard: int) -> tuple[int, int]:
        """The epoch and number up to which a shard's log is known to be committed."""
        epoch = self._epochs.get(shard, 0)
        return epoch, self._marks.get((shard, epoch), 0)

    @property
    def oldest_waiting(self) -> dict[int, tuple[int, int]]:
        """The first position that is waited for, by shard."""
        return {shard: (waiting[0][0], waiting[0][1]) for shard, waiting in self._waiting.items() if waiting}

    async def wait(self, position: Position, timeout_s: float) -> Status | None:
        """Return once the position is committed: None, or the refusal if Postgres rejected what was decided there.

        Raises Unknown when that takes too long, or when a later epoch took the shard over before it was known: it may
        be committed, so ask again under the same hold id.
        """
        if position.seq > self._marks.get((position.shard, position.epoch), 0):
            if position.epoch < self._epochs.get(position.shard, 0) or position.epoch <= self._over.get(
                position.shard, 0
            ):
                raise _epoch_is_over()
            loop = asyncio.get_running_loop()
            committed: asyncio.Future[None] = loop.create_future()
            waiting = self._waiting.setdefault(position.shard, [])
            deadline = loop.time() + timeout_s
            heappush(waiting, (position.epoch, position.seq, next(self._order), deadline, committed))
            if not self._looking:
                self._looking = True
                loop.call_later(_LOOK_S, self._give_up, loop)
            await committed
        return self._rejections.get((position.shard, position.epoch, position.seq))

    def advance(self, shard: int, epoch: int, seq: int) -> None:
        """Everything of the shard up to here is committed: answer those who waited for it."""
        if (epoch, seq) <= self.mark(shard):
            return
        self._epochs[shard], self._marks[shard, epoch] = epoch, seq
        waiting = self._waiting.get(shard)
        while waiting and waiting[0][:2] <= (epoch, seq):
            waited_epoch, *_, committed = heappop(waiting)
            if committed.done():
                continue
            if waited_epoch == epoch:
                committed.set_result(None)
            else:
                # What an epoch left behind when it ended is never applied.
                committed.set_exception(_epoch_is_over())

    def end(self, shard: int, epoch: int) -> None:
        """An epoch and those before it are over, and nothing more of them will be committed than is known here."""
        self._over[shard] = max(epoch, self._over.get(shard, 0))
        waiting = self._waiting.get(shard)
        while waiting and waiting[0][0] <= epoch:
            committed = heappop(waiting)[-1]
            if not committed.done():
                committed.set_exception(_epoch_is_over())

    def reject(self, shard: int, epoch: int, seq: int, status: Status) -> None:
        """What was decided at this position did not get into Postgres. Say so before advancing past it."""
        self._rejections[shard, epoch, seq] = status
        while len(self._rejections) > _REMEMBERED_REJECTIONS:
            self._rejections.popitem(last=False)

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer those who have waited too long, and look again while anybody waits."""
        now = loop.time()
        still_waiting = [each for waiting in self._waiting.values() for each in waiting if not each[-1].done()]
        for *_, deadline, committed in still_waiting:
            if deadline <= now:
                text = "not committed in time; the outcome is unknown, repeat with the same key"
                committed.set_exception(Uncommitted(text))
        self._looking = bool(still_waiting)
        if self._looking:
            loop.call_later(_LOOK_S, self._give_up, loop)


def _epoch_is_over() -> Uncommitted:
    return Uncommitted("the shard was taken over before the commit was known; repeat with the same key")


def rejection_status(reason: str) -> Status:
    """The refusal a rejection stands for."""
    return Status[reason.upper()]
