"""Bringing a shard back to Redis: a new epoch, built from Postgres, that takes over in one step.

- What the logs of earlier epochs have that was never applied is put into quarantine. It was never acknowledged as
  durable, and Postgres may have given the same seats to others since.
- The keys of the new epoch are built event by event while Postgres goes on serving, and again for events that have
  changed meanwhile, until few have.
- Then the fence is taken: nobody writes the shard. The last changes are built, every event's counters are compared with
  Postgres, and what was built last is compared byte for byte. Only then are the scripts loaded and the epoch opened,
  and its mode committed.

Keys of an epoch that nobody has committed are never read, and an epoch's number is never given out again. So a recovery
that dies anywhere before its commit has done no harm, and the next one starts afresh.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.keys import EventKeys, ShardKeys, epoch_of_key, shard_of_key
from holdfast.engine.redis_backend import RETENTION_MS
from holdfast.engine.shards import claim_server, open_epoch, read_incarnation
from holdfast.engine.wire import Wire
from holdfast.persistence.apply import columns
from holdfast.persistence.batches import fields_json
from holdfast.persistence.catalogue import load_event
from holdfast.persistence.fence import frozen
from holdfast.persistence.pool import Connection, Pool
from holdfast.persistence.postgres_event import read_postgres_event
from holdfast.persistence.redis_event import read_redis_counts
from holdfast.persistence.restored_keys import RestoredKeys, restore_keys
from holdfast.persistence.retained_log import number_of
from holdfast.persistence.sql import query
from holdfast.persistence.transitions import Cause, change_mode, sealed

# The bytes of "RECO".
RECOVERY_LOCKS = 0x5245434F

_KEYS = ("counts", "map", "kinds", "owners", "holds", "expiry", "ended")
_CHUNK = 1_000
_ROUNDS = 10
# So few events that changed again are left for the moment in which nobody may write.
_FEW_EVENTS = 3
_POLL_S = 0.05

_log = logging.getLogger(__name__)

Step = Callable[[str], Awaitable[None]]


class RecoveryError(Exception):
    """A shard that cannot be recovered now; the text is one sentence for the operator."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery did.

    `rebuilt` counts events that were built again because they changed, `sealed_s` is how long writers waited.
    """

    shard: int
    before: ShardState
    after: ShardState
    events: int
    holds: int
    rebuilt: int
    quarantined: int
    sealed_s: float
    seconds: float


class _Built(msgspec.Struct, frozen=True):
    """What an event was built from, and how many holds that were."""

    version: str
    changes: int
    holds: int


async def _no_step(_: str) -> None:
    """What happens between the steps of a recovery nobody watches."""


async def recover(
    redis: Redis,
    wire: Wire,
    pool: Pool,
    *,
    shards: int,
    shard: int,
    before: ShardState,
    cause: Cause,
    retention_ms: int = RETENTION_MS,
    step: Step = _no_step,
) -> Recovery:
    """Bring a shard that Postgres serves, or nobody yet, to Redis.

    `redis` and `wire` lead to the same server; `step` is told what comes next. Raises RecoveryError when somebody else
    recovers the shard or the keys do not come out right, Moved when the shard has changed meanwhile, and whatever goes
    wrong with a server.
    """
    if before.mode is Mode.REDIS:
        raise RecoveryError(f"Shard {shard} is served from Redis: take it to Postgres before it is built anew.")
    async with pool.acquire() as connection, _alone(connection, shard):
        work = _Recoverer(redis, wire, connection, shard=shard, before=before, retention_ms=retention_ms, step=step)
        return await work.run(shards, cause)


class _Recoverer:
    def __init__(
        self,
        redis: Redis,
        wire: Wire,
        connection: Connection,
        *,
        shard: int,
        before: ShardState,
        retention_ms: int,
        step: Step,
    ) -> None:
        self._redis: Any = redis
        self._wire = wire
        self._connection = connection
        self._shard = shard
        self._before = before
        self._retention_ms = retention_ms
        self._step = step
        self._keys = ShardKeys(shard, 0)
        self._built: dict[UUID, _Built] = {}
        self._rebuilt = 0

    async def run(self, shards: int, cause: Cause) -> Recovery:
        started = time.monotonic()
        await claim_server(self._wire, shards)
        incarnation = await read_incarnation(self._wire)
        async with sealed(self._connection, self._shard, self._before):
            since: int = await self._connection.fetchval(query("last_audit"))
        await self._step("quarantine")
        quarantined = await quarantine(self._redis, self._connection, self._shard)
        self._keys = ShardKeys(self._shard, await self._connection.fetchval(query("next_epoch")))
        after = ShardState(Mode.REDIS, self._keys.epoch)
        await self._step("build")
        await self._build(since)
        built_s = time.monotonic() - started
        await self._step("seal")
        async with sealed(self._connection, self._shard, self._before):
            sealed_at = time.monotonic()
            await self._step("delta")
            events = await self._build_changed(since)
            await self._step("compare")
            await self._compare_counts(events)
            await self._step("open")
            await open_epoch(self._wire, [self._keys], events=len(events), incarnation=incarnation)
            await self._step("commit")
            details = {
                "events": len(self._built),
                "holds": sum(each.holds for each in self._built.values()),
                "rebuilt": self._rebuilt,
                "quarantined": quarantined,
                "built_s": built_s,
                "sealed_s": time.monotonic() - sealed_at,
            }
            await change_mode(self._connection, self._shard, after, cause, details)
        await self._step("done")
        done = time.monotonic()
        recovery = Recovery(
            shard=self._shard,
            before=self._before,
            after=after,
            events=len(events),
            holds=sum(each.holds for each in self._built.values()),
            rebuilt=self._rebuilt,
            quarantined=quarantined,
            sealed_s=done - sealed_at,
            seconds=done - started,
        )
        _log.log(
            cause.level,
            "shard %d: Redis serves it from epoch %d on (%s, asked for by %s); built %d events with %d holds in %.3f s "
            "(%d of them twice), %d log entries quarantined, writers waited %.3f s",
            self._shard,
            after.epoch,
            cause.reason,
            cause.actor,
            recovery.events,
            recovery.holds,
            recovery.seconds,
            recovery.rebuilt,
            quarantined,
            recovery.sealed_s,
        )
        return recovery

    async def _build(self, since: int) -> None:
        """Build every event, and again what has changed, until little has."""
        for _ in range(_ROUNDS):
            changed = await self._changed(since)
            for row in changed:
                await self._build_event(row)
            if len(changed) <= _FEW_EVENTS:
                return

    async def _build_changed(self, since: int) -> list[Any]:
        """Build what has changed since, with nobody writing; returns every event of the shard."""
        for row in await self._changed(since):
            await self._build_event(row)
        events = await self._events(since)
        gone = self._built.keys() - {row["event_id"] for row in events}
        if gone:
            raise RecoveryError(f"Shard {self._shard}: {len(gone)} events went away while they were built.")
        return events

    async def _events(self, since: int) -> list[Any]:
        return list(await self._connection.fetch(query("list_shard_events"), self._shard, since))

    async def _changed(self, since: int) -> list[Any]:
        """The events that are not built yet, or not as they are now."""
        return [row for row in await self._events(since) if not self._is_current(row)]

    def _is_current(self, row: Any) -> bool:
        built = self._built.get(row["event_id"])
        return built is not None and (built.version, built.changes) == (row["config_version"], row["changes"])

    async def _build_event(self, row: Any) -> None:
        organization_id, event_id = row["organization_id"], row["event_id"]
        async with frozen(self._connection):
            event = await load_event(self._connection, organization_id, event_id)
            there = await read_postgres_event(self._connection, event_id, ended_for_ms=self._retention_ms)
        assert event is not None, "an event is never deleted"
        assert there is not None, "an event is never deleted"
        restored = restore_keys(event, there, self._keys.epoch, self._retention_ms)
        keys = EventKeys(self._keys, organization_id, event_id)
        await self._write(keys, restored)
        await self._check(keys, restored)
        self._rebuilt += event_id in self._built
        self._built[event_id] = _Built(there.version, row["changes"], len(there.active))

    async def _write(self, keys: EventKeys, restored: RestoredKeys) -> None:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for what in _KEYS:
                pipeline.unlink(keys.key(what))
                restored.write(pipeline, what, keys.key(what), _CHUNK)
            pipeline.sadd(keys.key("events"), keys.scope)
            await pipeline.execute()

    async def _check(self, keys: EventKeys, restored: RestoredKeys) -> None:
        """Every key has what was built for it."""
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.get(keys.key("map"))
            pipeline.get(keys.key("kinds"))
            pipeline.get(keys.key("owners"))
            pipeline.hgetall(keys.key("counts"))
            pipeline.hgetall(keys.key("holds"))
            pipeline.zrange(keys.key("expiry"), 0, -1, withscores=True)
            pipeline.zrange(keys.key("ended"), 0, -1, withscores=True)
            seat_map, kinds, owners, counts, holds, expiry, ended = await pipeline.execute()
        found = RestoredKeys(
            counts=counts,
            map=seat_map or b"",
            kinds=kinds or b"",
            owners=owners or b"",
            holds=holds,
            expiry={hold_id: int(score) for hold_id, score in expiry},
            ended={hold_id: int(score) for hold_id, score in ended},
        )
        if found != restored:
            raise RecoveryError(f"The event {keys.event_id} in Redis is not what was written: the epoch is given up.")

    async def _compare_counts(self, events: Sequence[Any]) -> None:
        """The counters of every event are those of Postgres, also of the events that were built long ago."""
        for row in events:
            keys = EventKeys(self._keys, row["organization_id"], row["event_id"])
            counts = await read_redis_counts(self._redis, keys)
            rows = await self._connection.fetch(query("read_zone_counts"), row["event_id"], row["organization_id"])
            expected: Mapping[int, tuple[int, ...]] = {zone["zone"]: tuple(zone)[1:] for zone in rows}
            found = {zone.zone: tuple(zone)[1:] for zone in counts.zones}
            if counts.version != row["config_version"] or found != expected:
                raise RecoveryError(
                    f"The event {row['event_id']} counts otherwise in Redis than in Postgres: the epoch is given up."
                )


async def quarantine(redis: Redis, connection: Connection, shard: int) -> int:
    """Keep what the logs of a shard on this server have above the mark of their epoch; returns how many entries."""
    kept = 0
    async for name in redis.scan_iter(match=f"hf:{{s{shard}}}:e*:log", count=_CHUNK):
        epoch = epoch_of_key(name)
        marks = await connection.fetch(query("read_final_marks"), [shard], [epoch])
        after = marks[0]["seq"] if marks else 0
        while True:
            entries: Any = await redis.xrange(name, min=f"({epoch}-{after}", count=_CHUNK)
            if not entries:
                break
            rows = [(shard, epoch, number_of(entry), fields_json(entry[1])) for entry in entries]
            await connection.execute(query("insert_quarantine"), *columns(rows))
            kept, after = kept + len(rows), rows[-1][2]
    if kept:
        _log.critical("shard %d: %d log entries were never applied and are kept in quarantine", shard, kept)
    return kept


async def remove_old_epochs(redis: Redis, current: Mapping[int, int]) -> int:
    """Remove the keys of epochs before the current one of each shard, a bounded step at a time; returns how many."""
    removed = 0
    cursor: Any = 0
    while True:
        names: Any
        cursor, names = await redis.scan(cursor, match="hf:{s*}:e*", count=_CHUNK)
        old = [name for name in names if epoch_of_key(name) < current.get(shard_of_key(name), 0)]
        if old:
            removed += await redis.unlink(*old)
        if not int(cursor):
            return removed
        await asyncio.sleep(0)


@asynccontextmanager
async def _alone(connection: Connection, shard: int) -> AsyncIterator[None]:
    """The right to recover a shard. Raises RecoveryError if somebody else has it."""
    if not await connection.fetchval(query("lock_recovery"), RECOVERY_LOCKS, shard):
        raise RecoveryError(f"Shard {shard} is being recovered by another process.")
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(query("unlock_recovery"), RECOVERY_LOCKS, shard)
