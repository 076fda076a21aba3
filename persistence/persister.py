"""The persister: brings every entry of the log into Postgres, once and in order.

A batch is whatever waits: it is applied in one transaction, together with the move of the mark. The mark moves by
compare-and-set, so of two persisters with the same batch one commits and the other starts over from where that one
came. Only what lies below the mark, less what is kept for replays, is trimmed from the log.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from uuid import UUID

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from holdfast.engine import telemetry
from holdfast.engine.cancellation import honour_cancellation
from holdfast.engine.keys import ShardKeys
from holdfast.persistence.apply import Collision, Rejection, apply_operations, columns, hold_columns
from holdfast.persistence.batches import UNAPPLICABLE, Batch, DeadLetter, Slice, gather
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.fence import SHARD_LOCKS
from holdfast.persistence.log_reading import read_logs
from holdfast.persistence.operations import Hold
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, Pool
from holdfast.persistence.sql import query

MARKS_CHANNEL = "holdfast_marks"
OUTBOX_CHANNEL = "holdfast_outbox"

_BATCH = 2_000
_BLOCK_MS = 1_000
# Batches so long are applied in halves if they are so many times as long as the one before. Longer ones are what has
# piled up, which does not come from callers who wait.
_HALVED = range(16, 200)
_LONGER = 1.5
# Redis is told of the marks of so long at once.
_TELL_S = 0.01
_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0
_REFRESH_S = 1.0
_NOTIFY_REJECTIONS = 100

# What Postgres, or the way to it, says about a value that it cannot take. Trying again would not help.
_UNAPPLICABLE = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, OverflowError)

# What the function persist_holds fails with.
_LOST_RACE, _COLLISION = "HF001", "HF002"

_log = logging.getLogger(__name__)


# What was refused, each with its shard.
Rejections = list[tuple[int, Rejection]]


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """What listeners are told of a commit: how far each shard came, and what was rejected (shard, seq, reason).

    With `more`, not all rejections are listed: ask for them before believing the marks.
    """

    marks: tuple[tuple[int, int, int], ...]
    rejections: tuple[tuple[int, int, str], ...] = ()
    more: bool = False


class Gap(msgspec.Struct, frozen=True):
    """Where a shard's log stops being whole."""

    mark: tuple[int, int]
    text: str


class LostRace(Exception):
    """Another persister has moved a mark, or the shard is no longer served from Redis in this epoch."""


def _nothing() -> None:
    """What there is to do at a commit when nothing follows."""


class Persister:
    """Applies the logs of so many shards, or of some. Any number may run.

    Without a compensation, what Postgres refuses is left for one that has it.
    """

    def __init__(
        self,
        redis: Redis,
        pool: Pool,
        *,
        shards: int | Sequence[int],
        compensation: Compensation | None,
        retention: int = 10_000,
        batch: int = _BATCH,
        refresh_s: float = _REFRESH_S,
    ) -> None:
        self._redis = redis
        self._pool = pool
        self._shards = list(range(shards)) if isinstance(shards, int) else list(shards)
        self._compensation = compensation
        self._retention = retention
        self._batch = batch
        self._refresh_s = refresh_s
        self._marks: dict[int, tuple[int, int]] = {}
        self._marks_read_at = 0.0
        self._halted: dict[int, Gap] = {}
        self._last_length = 0

    @property
    def halted(self) -> dict[int, str]:
        """The shards whose log has a gap, and what an operator should know about each."""
        return {shard: gap.text for shard, gap in self._halted.items()}

    async def run(self) -> None:
        """Persist until cancelled. Servers that do not answer are tried again; nothing is skipped meanwhile."""
        pause = _RETRY_FIRST_S
        while True:
            honour_cancellation()
            try:
                await self._follow()
                pause = _RETRY_FIRST_S
            except LostRace:
                self._marks.clear()
            except (RedisError, *POSTGRES_ERRORS) as error:
                self._marks.clear()
                telemetry.persist_failures.value += 1
                _log.warning("the log is not being persisted, trying again in %.2f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _RETRY_MAX_S)

    async def step(self, block_ms: int = _BLOCK_MS) -> int:
        """Apply what waits in the log, waiting for it at most `block_ms`; returns how many entries were applied."""
        await self._refresh()
        batch = await self._read(self._marks, block_ms)
        if batch.slices:
            rejections = await self._persist(batch)
            await self._tell_redis(batch.ends)
            await self._give_back(batch, rejections)
        return batch.length

    async def _follow(self) -> None:
        """Apply batch after batch, until nothing waits or the marks are due to be read again.

        What no caller waits for is done meanwhile: the next batch is read while one commits, and Redis is told how far
        the log is safe while the next one is applied.
        """
        await self._refresh()
        reading: asyncio.Task[Batch] | None = None
        telling: asyncio.Task[None] | None = None
        untold: dict[int, tuple[int, int]] = {}

        def read_on() -> None:
            nonlocal reading
            if not self._refresh_due:
                reading = asyncio.create_task(self._read(self._marks | batch.ends, _BLOCK_MS))

        async def tell() -> None:
            while untold:
                await asyncio.sleep(_TELL_S)
                marks = untold.copy()
                untold.clear()
                await self._tell_redis(marks)

        batch = await self._read(self._marks, _BLOCK_MS)
        try:
            while batch.slices:
                parts = self._parts(batch)
                for part in parts:
                    rejections = await self._persist(part, read_on if part is parts[-1] else _nothing)
                    untold.update(part.ends)
                    if not telling or telling.done():
                        if telling:
                            telling.result()
                        telling = asyncio.create_task(tell())
                    await self._give_back(part, rejections)
                if not reading:
                    read_on()
                batch = await reading if reading else Batch(())
                reading = None
        finally:
            # What was not told by now is told at the next refresh.
            left = [task for task in (reading, telling) if task]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _parts(self, batch: Batch) -> Sequence[Batch]:
        """The batch, or its halves if it is so much longer than the last one that nearly all callers wait for it.

        Those of the first half come back while the second is written. In one batch, all of them would wait for
        Postgres, and then Postgres for them.
        """
        longer = batch.length >= _LONGER * self._last_length
        parts = batch.halves() if longer and batch.length in _HALVED else [batch]
        self._last_length = parts[-1].length
        return parts

    @property
    def _refresh_due(self) -> bool:
        return not self._marks or time.monotonic() - self._marks_read_at > self._refresh_s

    async def _refresh(self) -> None:
        """Read the marks now and then, not only after a fault: a shard may have got a new epoch, or a mended log."""
        if self._refresh_due:
            if self._compensation is not None:
                await self._compensation.catch_up()
            await self._read_marks()

    async def _persist(self, batch: Batch, about_to_commit: Callable[[], None] = _nothing) -> Rejections:
        """Commit a batch as quickly as its content allows; returns what Postgres refused."""
        began = time.monotonic()
        try:
            try:
                if holds := batch.separate_holds:
                    await self._commit_holds(batch, holds)
                    rejections: Rejections = []
                else:
                    rejections = await self._commit(batch, about_to_commit, optimistic=True)
            except Collision:
                rejections = await self._commit(batch)
        except _UNAPPLICABLE as error:
            _log.error("a batch could not be applied, its entries are tried one by one: %s", error)
            rejections = await self._commit_singly(batch)
        telemetry.persist_seconds.observe(time.monotonic() - began)
        telemetry.persisted_entries.value += batch.length
        telemetry.expired.value += batch.expired_holds
        telemetry.rejections.value += len(rejections)
        self._marks.update(batch.ends)
        return rejections

    async def _read_marks(self) -> None:
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(query("read_marks"), self._shards)
        self._marks = {row["shard"]: (row["epoch"], row["seq"]) for row in rows}
        self._marks_read_at = time.monotonic()
        self._halted = {shard: gap for shard, gap in self._halted.items() if self._marks.get(shard) == gap.mark}
        await self._tell_redis({shard: mark for shard, mark in self._marks.items() if mark[1]})
        if not self._marks:
            # Nothing is served from Redis: look again soon, without turning in circles.
            await asyncio.sleep(_RETRY_FIRST_S)

    async def _read(self, marks: Mapping[int, tuple[int, int]], block_ms: int) -> Batch:
        """What follows the marks, as soon as there is something."""
        streams = {
            _log_key(shard, epoch): f"{epoch}-{seq}"
            for shard, (epoch, seq) in marks.items()
            if shard not in self._halted
        }
        if not streams:
            await asyncio.sleep(block_ms / 1000)
            return Batch(())
        found = await read_logs(self._redis, streams, count=self._batch, block_ms=block_ms)
        slices = []
        for shard, (epoch, seq) in marks.items():
            entries = found.get(_log_key(shard, epoch))
            if not entries:
                continue
            gathered = gather(shard, epoch, seq, entries)
            if gathered.gap:
                await self._halt(gathered)
            if gathered.last_seq > seq:
                slices.append(gathered)
        return Batch(tuple(slices))

    async def _halt(self, gathered: Slice) -> None:
        """Leave a shard whose log has a gap alone, unless this only looks so: another persister may have trimmed it."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(query("read_marks"), [gathered.shard])
        if [(row["epoch"], row["seq"]) for row in rows] != [(gathered.epoch, gathered.first_seq)]:
            raise LostRace
        self._halted[gathered.shard] = Gap((gathered.epoch, gathered.last_seq), gathered.gap)
        async with self._pool.acquire() as connection:
            await connection.execute(
                query("note_halt"), gathered.shard, gathered.epoch, gathered.last_seq, gathered.gap
            )
        _log.critical("shard %d is halted: %s", gathered.shard, gathered.gap)

    async def _commit(
        self, batch: Batch, about_to_commit: Callable[[], None] = _nothing, *, optimistic: bool = False
    ) -> Rejections:
        """One transaction for the whole batch; returns rejections with their shard."""
        async with self._pool.acquire() as connection, connection.transaction():
            await self._fence(connection, batch)
            rejections = await self._apply(connection, batch, optimistic=optimistic)
            rejections += [
                (each.shard, rejection)
                for each in batch.slices
                for letter in each.dead_letters
                for rejection in letter.rejections
            ]
            await _keep_dead_letters(connection, batch)
            await _keep_rejections(connection, batch, rejections)
            await _announce(connection, batch, rejections)
            about_to_commit()
        return rejections

    async def _commit_holds(self, batch: Batch, holds: Sequence[Hold]) -> None:
        """The same, in one call, for holds in whose way nothing is looked for. Raises Collision if something is."""
        try:
            async with self._pool.acquire() as connection:
                await connection.execute(
                    query("persist_holds"),
                    SHARD_LOCKS,
                    *columns(_moves(batch)),
                    MARKS_CHANNEL,
                    _told(batch, []),
                    OUTBOX_CHANNEL,
                    *hold_columns(holds),
                )
        except asyncpg.PostgresError as error:
            if error.sqlstate == _LOST_RACE:
                raise LostRace from error
            if error.sqlstate == _COLLISION or isinstance(error, asyncpg.UniqueViolationError):
                raise Collision(str(error)) from error
            raise

    async def _commit_singly(self, batch: Batch) -> Rejections:
        """The same, an entry at a time; one that cannot be applied becomes a dead letter and holds nothing up."""
        rejections = []
        for single in batch.singles():
            try:
                rejections += await self._commit(single)
            except _UNAPPLICABLE as error:
                _log.critical("a log entry cannot be applied and is kept as a dead letter: %s", error)
                rejections += await self._commit(single.as_dead_letters(str(error)))
        return rejections

    async def _fence(self, connection: Connection, batch: Batch) -> None:
        """Take the shards' locks, then move the marks of those that are still where this batch begins."""
        shards = [each.shard for each in batch.slices]
        await connection.execute(query("lock_shards"), SHARD_LOCKS, shards)
        if await connection.fetchval(query("advance_marks"), *columns(_moves(batch))) != len(shards):
            raise LostRace

    async def _apply(self, connection: Connection, batch: Batch, *, optimistic: bool) -> Rejections:
        shard_of_event: dict[UUID, int] = {
            operation.entry.event_id: each.shard for each in batch.slices for operation in each.operations
        }
        rejections = await apply_operations(connection, batch.operations, optimistic=optimistic)
        return [(shard_of_event[rejection.event_id], rejection) for rejection in rejections]

    async def _give_back(self, batch: Batch, rejections: Rejections) -> None:
        """Release in Redis what Postgres refused."""
        if rejections:
            _log.error("Postgres refused %d decisions of Redis", len(rejections))
            if self._compensation is not None:
                await self._compensation(
                    [(ShardKeys(shard, batch.ends[shard][0]), rejection) for shard, rejection in rejections]
                )

    async def _tell_redis(self, marks: dict[int, tuple[int, int]]) -> None:
        """Set the marks by which scripts know how much waits, and trim what no replay will ask for.

        Repeated now and then with what Postgres says: a persister that died, or was overtaken, leaves an old mark
        behind, and when that alone makes holds busy, no entry comes that would move it.
        """
        async with self._redis.pipeline(transaction=False) as pipeline:
            for shard, (epoch, seq) in marks.items():
                keys = ShardKeys(shard, epoch)
                pipeline.set(keys.key("mark"), seq)
                keep_from = seq - self._retention
                if keep_from > 0:
                    pipeline.xtrim(keys.key("log"), minid=f"{epoch}-{keep_from}", approximate=True)
            await pipeline.execute()


async def _keep_dead_letters(connection: Connection, batch: Batch) -> None:
    letters: list[tuple[Slice, DeadLetter]] = [(each, letter) for each in batch.slices for letter in each.dead_letters]
    if letters:
        rows = [(each.shard, each.epoch, letter.seq, letter.fields, letter.error) for each, letter in letters]
        await connection.execute(query("insert_dead_letters"), *columns(rows))
        _log.critical("%d log entries could not be read and are kept as dead letters", len(letters))


async def _keep_rejections(connection: Connection, batch: Batch, rejections: Rejections) -> None:
    if rejections:
        epochs = {each.shard: each.epoch for each in batch.slices}
        rows = [
            (
                shard,
                epochs[shard],
                each.seq,
                each.organization_id,
                each.event_id,
                each.hold_id,
                each.operation,
                each.reason,
            )
            for shard, each in rejections
        ]
        await connection.execute(query("insert_rejections"), *columns(rows))


async def _announce(connection: Connection, batch: Batch, rejections: Rejections) -> None:
    await connection.execute(query("notify_commit"), MARKS_CHANNEL, _told(batch, rejections), OUTBOX_CHANNEL)


def _moves(batch: Batch) -> list[tuple[int, ...]]:
    """From where to where the mark of each shard goes."""
    return [(each.shard, each.epoch, each.first_seq, each.last_seq, each.last_at_ms) for each in batch.slices]


def _told(batch: Batch, rejections: Rejections) -> str:
    """What those who listen for marks are told of a batch."""
    told = {(shard, rejection.seq): rejection.reason for shard, rejection in rejections}
    told.update({(each.shard, letter.seq): UNAPPLICABLE for each in batch.slices for letter in each.dead_letters})
    committed = Committed(
        tuple((each.shard, each.epoch, each.last_seq) for each in batch.slices),
        tuple((shard, seq, reason) for (shard, seq), reason in list(told.items())[:_NOTIFY_REJECTIONS]),
        more=len(told) > _NOTIFY_REJECTIONS,
    )
    return msgspec.json.encode(committed).decode()


@cache
def _log_key(shard: int, epoch: int) -> bytes:
    return ShardKeys(shard, epoch).key("log")
