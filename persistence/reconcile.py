"""Bringing one event in Redis back to what Postgres says of it.

The event's keys are built anew beside the old ones, from rows, and take their place in one step. What makes that safe:

- While it lasts the event takes no new holds: its version in Redis is a reserved one, so that hold requests are
  answered `stale_config`, which callers repeat. Releases, extensions, sales and expiries go on.
- Nothing is lost. The old keys are watched from before they are read; then the persister is waited for, until every
  entry that was in the log is in Postgres; and only if nothing has changed the old keys meanwhile do the new ones
  replace them. Otherwise it starts over.
- Postgres does not move away either: the shard's fence is held, so its mode and epoch stay, and the event's
  configuration is locked against `holdfast event`.
- The log goes on as it is. Nothing is appended, so nothing is persisted twice.

One that dies on the way leaves the event closed to new holds. Doing it again completes it.

Front ends learn what was repaired from the next entries about a seat: until then one may still call a seat taken that
has come free. None ever calls a taken seat free.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
from redis.asyncio import Redis
from redis.exceptions import WatchError

from holdfast.engine.audit import Actor
from holdfast.engine.keys import EventKeys
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.redis_backend import RETENTION_MS
from holdfast.persistence.catalogue import audit_event, changing, list_events, load_event
from holdfast.persistence.compare import Finding, compare, what_moved
from holdfast.persistence.fence import SHARD_LOCKS, ShardControl, frozen, read_controls
from holdfast.persistence.pool import Connection
from holdfast.persistence.postgres_event import PostgresEvent, read_postgres_event
from holdfast.persistence.redis_event import RedisEvent, read_redis_event
from holdfast.persistence.restored_keys import RestoredKeys, restore_keys
from holdfast.persistence.retained_log import read_operations
from holdfast.persistence.sql import query
from holdfast.persistence.status import await_mark
from holdfast.persistence.verify import check_rows

PATIENCE_S = 10.0

# No digest of a document begins like this, so no caller ever knows the event under such a version.
PAUSED = b"paused:"

_OPERATOR = Actor(user_agent="holdfast reconcile")
_ATTEMPTS = 50
_BESIDE = b":restored"
_BESIDE_TTL_S = 600
_KEYS = ("counts", "map", "kinds", "owners", "holds", "expiry", "ended")
_CHUNK = 1_000
_PAUSE_S = 0.002


class ReconcileError(Exception):
    """An event that cannot be reconciled; the text is one sentence for the operator."""


class Reconciliation(msgspec.Struct, frozen=True):
    """What differed, and whether Redis was brought to it."""

    event_id: UUID
    findings: tuple[Finding, ...]
    repaired: bool


async def reconcile(
    redis: Redis,
    connection: Connection,
    event_id: UUID,
    *,
    dry_run: bool,
    actor: Actor = _OPERATOR,
    retention_ms: int = RETENTION_MS,
    patience_s: float = PATIENCE_S,
) -> Reconciliation:
    """Compare an event in Redis with Postgres and, unless this is a dry run, replace it if they differ.

    `actor` is whom the audit names when something was replaced. `retention_ms` is how long ended holds stay on record,
    as the backend has it. Raises ReconcileError.
    """
    async with changing(connection, event_id):
        summary = next(iter(await list_events(connection, None, event_id)), None)
        event = await load_event(connection, summary.organization_id, event_id) if summary else None
        if summary is None or event is None:
            raise ReconcileError(f"There is no event {event_id}.")
        async with _fence_held(connection, summary.shard):
            control = (await read_controls(connection, [summary.shard]))[summary.shard]
            if control.mode != "redis":
                raise ReconcileError(f"Shard {summary.shard}, where the event lives, is not served from Redis.")
            work = _Reconciler(redis, connection, event, control, retention_ms=retention_ms, patience_s=patience_s)
            done = await (work.look() if dry_run else work.repair())
        if done.repaired:
            changes = {"findings": len(done.findings)}
            await audit_event(connection, summary, "event_reconciled", changes, actor)
        return done


class _Reconciler:
    def __init__(
        self,
        redis: Redis,
        connection: Connection,
        event: CompiledEvent,
        control: ShardControl,
        *,
        retention_ms: int,
        patience_s: float,
    ) -> None:
        # The annotations of redis-py mix its two clients.
        self._redis: Any = redis
        self._connection = connection
        self._event = event
        self._control = control
        self._keys = EventKeys(control.keys, event.organization_id, event.event_id)
        self._retention_ms = retention_ms
        self._patience_s = patience_s

    async def look(self) -> Reconciliation:
        """What differs, with nothing touched."""
        here = await read_redis_event(self._redis, self._keys)
        _, findings = await self._compare(here)
        return Reconciliation(self._event.event_id, findings, repaired=False)

    async def repair(self) -> Reconciliation:
        """Replace the event's keys if anything differs."""
        await self._check_possible()
        looked = await self.look()
        if not looked.findings:
            return looked
        await self._pause()
        try:
            for attempt in range(_ATTEMPTS):
                findings = await self._try_to_replace()
                if findings is not None:
                    return Reconciliation(self._event.event_id, findings, repaired=True)
                await asyncio.sleep(_PAUSE_S * attempt)
            raise ReconcileError(
                f"The event {self._event.event_id} changes too fast to be replaced: try again, or close it first."
            )
        finally:
            await self._resume()

    async def _check_possible(self) -> None:
        if not await self._redis.exists(self._keys.key("open")):
            raise ReconcileError(f"Shard {self._control.shard} is not in service on this Redis.")
        if not await self._redis.sismember(self._keys.key("events"), self._keys.scope):
            raise ReconcileError(f"The event {self._event.event_id} is not open in Redis.")
        if findings := await check_rows(self._connection, self._event.event_id):
            raise ReconcileError(
                f"Postgres itself does not balance, so Redis cannot be made from it ({findings[0]}): "
                f"run `holdfast replay` first."
            )

    async def _pause(self) -> None:
        """Let no new hold in, by a version that no caller knows."""
        version: bytes | None = await self._redis.hget(self._keys.key("counts"), "version")
        if version and not version.startswith(PAUSED):
            await self._redis.hset(self._keys.key("counts"), "version", PAUSED + version)

    async def _resume(self) -> None:
        """Let holds in again, if the event was not replaced and is as it was."""
        version: bytes | None = await self._redis.hget(self._keys.key("counts"), "version")
        if version and version.startswith(PAUSED):
            await self._redis.hset(self._keys.key("counts"), "version", version.removeprefix(PAUSED))

    async def _try_to_replace(self) -> tuple[Finding, ...] | None:
        """Build the event from rows and let it take the place of the old one, unless that has changed meanwhile."""
        async with self._redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(self._keys.key("open"), *(self._keys.key(what) for what in _KEYS))
            here = await read_redis_event(self._redis, self._keys)
            there, findings = await self._compare(here)
            built = restore_keys(self._event, there, self._control.epoch, self._retention_ms)
            await self._write_beside(built)
            pipeline.multi()
            for what in _KEYS:
                name = self._keys.key(what)
                pipeline.unlink(name)
                if built.has(what):
                    pipeline.rename(name + _BESIDE, name)
                    pipeline.persist(name)
            try:
                await pipeline.execute()
            except WatchError:
                return None
        return tuple(finding for finding in findings if not finding.problem.startswith(f"version {PAUSED.decode()}"))

    async def _compare(self, here: RedisEvent) -> tuple[PostgresEvent, tuple[Finding, ...]]:
        """The event in Postgres at a mark that has everything Redis had, and what differs."""
        control = await await_mark(self._connection, self._control, here.counts.seq, self._patience_s)
        if control.mark < here.counts.seq:
            raise ReconcileError(
                f"The log of shard {control.shard} is persisted up to {control.mark} of {here.counts.seq} only: "
                f"let the keeper catch up first."
            )
        async with frozen(self._connection):
            control = (await read_controls(self._connection, [control.shard]))[control.shard]
            there = await read_postgres_event(self._connection, self._event.event_id, ended_for_ms=self._retention_ms)
        if there is None:
            raise ReconcileError(f"There is no event {self._event.event_id}.")
        between = await read_operations(self._redis, control.keys, here.counts.seq, control.mark)
        moving = what_moved(each for each in between if each.entry.event_id == self._event.event_id)
        return there, tuple(compare(self._event, here, there, moving))

    async def _write_beside(self, built: RestoredKeys) -> None:
        """Write the new keys under names of their own, which vanish if nobody comes back for them."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for what in _KEYS:
                name = self._keys.key(what) + _BESIDE
                pipeline.unlink(name)
                built.write(pipeline, what, name, _CHUNK)
                pipeline.expire(name, _BESIDE_TTL_S)
            await pipeline.execute()


@asynccontextmanager
async def _fence_held(connection: Connection, shard: int) -> AsyncIterator[None]:
    """The shard's fence for longer than a transaction."""
    await connection.execute(query("hold_shard"), SHARD_LOCKS, shard)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(query("let_go_shard"), SHARD_LOCKS, shard)
