"""Calls to events that Postgres serves, decided and committed together.

Calls to one event that arrive while another commit is under way wait for it, and are then one transaction: they are
decided one after the other on one view of the event, and written by the statements that write a batch of the log. A
call that comes alone is a transaction of its own.

The order of locks is the same everywhere, so nobody waits for somebody who waits for him: the fence, shared; the
shard's mark, which all who write a shard take, and for which alone anybody waits; then seats, in their order and
never waiting. A seat that is locked is taken.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Generic, TypeVar

import asyncpg
import msgspec

from holdfast.engine import telemetry
from holdfast.engine.acks import rejection_status
from holdfast.engine.backend import AdminReply, EventIds, ExpireReply, HoldReply, HoldsReply, Position
from holdfast.engine.errors import BackendError, Overloaded, ScriptFault, Unavailable, Unknown
from holdfast.engine.keys import shard_of
from holdfast.engine.status import Status
from holdfast.persistence.apply import Collision, apply_operations
from holdfast.persistence.errors import outcome_of
from holdfast.persistence.fence import SHARD_LOCKS
from holdfast.persistence.operations import count_expired
from holdfast.persistence.persister import MARKS_CHANNEL, OUTBOX_CHANNEL, Committed
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, Pool
from holdfast.persistence.row_lock_view import Asks, MustLock, SeatsLocked, Sighting, View
from holdfast.persistence.sql import query

MAX_CALLS = 256
MAX_WAITING = 10_000
LISTED_SEATS = 1_000

# How long a call may wait for its turn, or for a connection: as long as a statement may take.
PATIENCE_S = 2.0

_SIGHTING = msgspec.json.Decoder(Sighting)
_BUSY = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_UNACCEPTABLE = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)

_log = logging.getLogger(__name__)

Reply = TypeVar("Reply", bound=HoldReply | HoldsReply | AdminReply | ExpireReply)


class Call(Generic[Reply]):
    """A call to an event: what it wants to know, how it decides, and how it says no for reasons of Postgres's.

    One that is `alone` shares its transaction with no other.
    """

    def __init__(
        self,
        asks: Asks,
        decide: Callable[[View], Awaitable[Reply]],
        refuse: Callable[[Status, int, Position], Reply],
        *,
        alone: bool = False,
    ) -> None:
        self.asks = asks
        self.decide = decide
        self.refuse = refuse
        self.alone = alone
        self.came_at = time.monotonic()
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()


class _Rejected(Exception):
    """Postgres rejected what was decided. Nothing of it is written, and what other calls were told may rest on it."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


class GroupCommit:
    """Runs calls against Postgres, those to one event together."""

    def __init__(self, pool: Pool, *, shards: int) -> None:
        self._pool = pool
        self._shards = shards
        self._waiting: dict[EventIds, deque[Call[Any]]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def run(self, event: EventIds, call: Call[Reply]) -> Reply:
        """The answer to a call, once what it changes is committed. Raises a BackendError and nothing else."""
        waiting = self._waiting.get(event)
        if waiting is None:
            self._waiting[event] = deque([call])
            worker = asyncio.create_task(self._work(event))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        elif len(waiting) >= MAX_WAITING:
            raise Overloaded(f"more than {MAX_WAITING} calls wait for event {event.event_id}")
        else:
            waiting.append(call)
        return await call.answer

    async def _work(self, event: EventIds) -> None:
        """Serve an event's calls until none waits. An event has one worker, so its calls gather behind a commit."""
        waiting = self._waiting[event]
        try:
            while waiting:
                if calls := _next_group(waiting):
                    await self._serve(event, calls)
        finally:
            del self._waiting[event]
            _fail(waiting, Unavailable("the process stops"))

    async def _serve(self, event: EventIds, calls: Sequence[Call[Any]], *, optimistic: bool = True) -> None:
        """Answer calls. Hardly anything can collide with what is decided under the lock, so that is tried first."""
        if not calls:
            return
        group = _Group(self._pool, event, shard_of(event.event_id, self._shards), calls, optimistic=optimistic)
        try:
            await group.run()
        except Collision:
            await self._serve(event, _unanswered(calls), optimistic=False)
        except BackendError as error:
            _fail(calls, error)
        except Exception as error:
            # Nothing is written. One call's trouble is not for the others to have.
            await self._serve_singly(event, _unanswered(calls), error)
        finally:
            _fail(calls, Unknown("the process stops"))

    async def _serve_singly(self, event: EventIds, calls: Sequence[Call[Any]], error: Exception) -> None:
        """Find out which call it was that could not be served, and say so to that one."""
        if len(calls) > 1:
            for call in calls:
                await self._serve(event, [call], optimistic=False)
        elif calls and (status := _outcome(error)):
            nowhere = Position(shard_of(event.event_id, self._shards), 0, 0)
            _answer(calls[0], calls[0].refuse(status, 0, nowhere))
        elif isinstance(error, SeatsLocked):
            _fail(calls, Overloaded("somebody else is changing the same seats"))
        else:
            _log.error("a call to event %s failed: %r", event.event_id, error, exc_info=error)
            _fail(calls, ScriptFault(f"a call failed in a way it never should: {error!r}"))


class _Group:
    """Some calls to one event, in one transaction at most."""

    def __init__(
        self, pool: Pool, event: EventIds, shard: int, calls: Sequence[Call[Any]], *, optimistic: bool
    ) -> None:
        self._pool = pool
        self._event = event
        self._shard = shard
        self._calls = calls
        self._optimistic = optimistic
        self._connection: Connection = None

    async def run(self) -> None:
        try:
            async with self._pool.acquire(timeout=PATIENCE_S) as connection:
                self._connection = connection
                # Most refusals need no lock: they were true at the moment of this reading.
                pending = await self._decide(await self._look(self._calls, locked=False), self._calls)
                if pending:
                    await self._change(pending)
        except _BUSY as error:
            raise Overloaded(f"Postgres took too long: {error}") from error
        except _UNACCEPTABLE:
            # What Postgres cannot take is no outage: it is for the calls to answer for.
            raise
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"Postgres cannot be used: {error or type(error).__name__}") from error

    async def _change(self, calls: Sequence[Call[Any]]) -> None:
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            view = await self._enter(calls)
            replies = [(call, await call.decide(view)) for call in calls]
            if view.operations:
                await self._write(view)
        except BaseException:
            await _roll_back(self._connection, transaction)
            raise
        if view.operations:
            try:
                await transaction.commit()
            except POSTGRES_ERRORS as error:
                raise Unknown(f"the commit was not confirmed: {error or type(error).__name__}") from error
            telemetry.expired.value += count_expired(view.operations)
        else:
            await transaction.rollback()
        for call, reply in replies:
            _answer(call, reply)

    async def _enter(self, calls: Sequence[Call[Any]]) -> View:
        """A view that nobody can make untrue any more. Where somebody else serves the shard, it says that."""
        await self._connection.execute(query("lock_shards"), SHARD_LOCKS, [self._shard])
        mark = await self._connection.fetchrow(query("lock_own_mark"), self._shard)
        view = await self._look(calls, locked=mark is not None)
        if mark is not None:
            await view.lock(view.seats)
        return view

    async def _write(self, view: View) -> None:
        """Write what was decided, and how far the shard's numbers have come by that."""
        if rejections := await apply_operations(self._connection, view.operations, optimistic=self._optimistic):
            raise _Rejected(rejection_status(rejections[0].reason))
        last = view.operations[-1].entry
        committed = Committed(((self._shard, last.epoch, last.seq),))
        await self._connection.execute(
            query("move_own_mark"),
            self._shard,
            last.epoch,
            last.seq,
            last.at_ms,
            MARKS_CHANNEL,
            msgspec.json.encode(committed).decode(),
            OUTBOX_CHANNEL,
        )

    async def _decide(self, view: View, calls: Sequence[Call[Any]]) -> list[Call[Any]]:
        """Answer the calls that change nothing; returns the others."""
        pending = []
        for call in calls:
            try:
                _answer(call, await call.decide(view))
            except MustLock:
                pending.append(call)
        return pending

    async def _look(self, calls: Sequence[Call[Any]], *, locked: bool) -> View:
        asks = [call.asks for call in calls]
        sighting = await read_sighting(self._connection, self._event, self._shard, asks)
        return View(sighting, self._event, self._shard, self if locked else None)

    async def lock_seats(self, ordinals: Iterable[int]) -> set[int]:
        ids = self._event
        rows = await self._connection.fetch(query("lock_seats"), ids.event_id, ids.organization_id, list(ordinals))
        return {row["ordinal"] for row in rows}

    async def list_free_seats(self, after: int, last: int) -> list[int]:
        ids = self._event
        rows = await self._connection.fetch(
            query("list_free_seats"), ids.event_id, ids.organization_id, after, last, LISTED_SEATS
        )
        return [row["ordinal"] for row in rows]


async def read_sighting(connection: Connection, event: EventIds, shard: int, asks: Sequence[Asks]) -> Sighting:
    """What some calls want to know of an event, all of it at one moment."""
    text = await connection.fetchval(
        query("look_at_event"),
        shard,
        event.event_id,
        event.organization_id,
        _all(each.hold_ids for each in asks),
        _all(each.ordinals for each in asks),
        _all(each.zones for each in asks),
        _all(each.user_ids for each in asks),
        _all(each.addresses for each in asks),
        max(each.window_ms for each in asks),
        max(each.overdue for each in asks),
    )
    return _SIGHTING.decode(text)


def _next_group(waiting: deque[Call[Any]]) -> list[Call[Any]]:
    """The calls to serve next. Those that have waited too long are not worth beginning with."""
    group: list[Call[Any]] = []
    latest = time.monotonic() - PATIENCE_S
    while waiting and len(group) < MAX_CALLS and not (group and (group[0].alone or waiting[0].alone)):
        call = waiting.popleft()
        if call.came_at < latest:
            _fail([call], Overloaded(f"no turn within {PATIENCE_S:.0f} s"))
        elif not call.answer.done():
            group.append(call)
    return group


async def _roll_back(connection: Connection, transaction: Any) -> None:
    """End a transaction that failed. A connection that is lost has ended it by itself."""
    if not connection.is_closed():
        with suppress(*POSTGRES_ERRORS):
            await transaction.rollback()


def _outcome(error: Exception) -> Status | None:
    """The refusal that a change which Postgres does not take stands for, if anybody foresaw it."""
    if isinstance(error, _Rejected):
        return error.status
    if isinstance(error, asyncpg.DataError):
        return Status.INVALID_REQUEST
    return outcome_of(error) if isinstance(error, asyncpg.PostgresError) else None


def _unanswered(calls: Iterable[Call[Any]]) -> list[Call[Any]]:
    """The calls that may be decided once more. Whoever has an answer must not be given what it refused."""
    return [call for call in calls if not call.answer.done()]


def _answer(call: Call[Reply], reply: Reply) -> None:
    """Answer a call, unless its caller is gone."""
    if not call.answer.done():
        call.answer.set_result(reply)


def _fail(calls: Iterable[Call[Any]], error: BackendError) -> None:
    for call in calls:
        if not call.answer.done():
            call.answer.set_exception(error)


def _all(parts: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))
