"""Changing who serves a shard.

A change takes the shard's fence exclusively: every writer of the old epoch has committed or will fail, because each
checks mode and epoch after it has taken the fence. What a change is made on is given as a precondition, so of two that
want the same one succeeds.
"""

import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.keys import ShardKeys
from holdfast.engine.shards import ShardCountError
from holdfast.persistence.controls import CONTROL_CHANNEL
from holdfast.persistence.fence import SHARD_LOCKS, ShardControl, read_controls
from holdfast.persistence.persister import LostRace, Persister
from holdfast.persistence.pool import Connection, Pool
from holdfast.persistence.retained_log import last_number
from holdfast.persistence.sql import query

# Everybody who wants to write the shard waits behind a change, so it gives up before that hurts, and is tried again.
SEAL_PATIENCE_MS = 1_500
DRAIN_PATIENCE_S = 10.0

_DRAIN_BLOCK_MS = 50

_log = logging.getLogger(__name__)


class Moved(Exception):
    """The shard is no longer in the state the change was to be made on; the text is one sentence for the operator."""


class Cause(msgspec.Struct, frozen=True):
    """Why a shard changes, who wants it, and whether only an operator may change it back; `level` is how loud it is."""

    reason: str
    actor: str
    pinned: bool = False
    level: int = logging.WARNING


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made. `drained` is what was persisted of the old log, `left` what was not and never will be."""

    shard: int
    before: ShardState
    after: ShardState
    drained: int = 0
    left: int = 0
    seconds: float = 0.0


async def declare_shards(connection: Connection, shards: int) -> None:
    """Note shards that were never in service. Raises ShardCountError if there is another number of them already."""
    known = await connection.fetchval(query("count_shards"))
    if known not in (0, shards):
        raise ShardCountError(
            f"This Postgres was set up with {known} shards; start Holdfast with HOLDFAST_SHARDS={known}."
        )
    if not known:
        await connection.execute(query("declare_shards"), list(range(shards)))


async def to_db(pool: Pool, shard: int, before: ShardState, cause: Cause, *, redis: Redis | None = None) -> Transition:
    """Let Postgres serve a shard that Redis serves. Raises Moved if it is no longer in the state given.

    With a server, its epoch is closed and drained first, as far as that can be done. What was not drained was never
    acknowledged as durable.
    """
    started = time.monotonic()
    drained = left = 0
    if redis is not None and before.mode is Mode.REDIS:
        drained, left = await close_and_drain(redis, pool, ShardKeys(shard, before.epoch))
    async with pool.acquire() as connection, sealed(connection, shard, before):
        epoch: int = await connection.fetchval(query("next_epoch"))
        after = ShardState(Mode.DB, epoch)
        seconds = time.monotonic() - started
        await change_mode(connection, shard, after, cause, {"drained": drained, "left": left, "seconds": seconds})
    _log.log(
        cause.level,
        "shard %d: Postgres serves it from epoch %d on (%s, asked for by %s); drained %d entries, left %d, in %.3f s",
        shard,
        epoch,
        cause.reason,
        cause.actor,
        drained,
        left,
        seconds,
    )
    return Transition(shard=shard, before=before, after=after, drained=drained, left=left, seconds=seconds)


async def close_and_drain(redis: Redis, pool: Pool, keys: ShardKeys) -> tuple[int, int]:
    """Let no script into an epoch any more and persist its log; returns how much was persisted, and how much was not.

    Never raises for a server that does not answer: it is then left as it is.
    """
    async with pool.acquire() as connection:
        if await connection.fetchval(query("begin_closing"), keys.shard, keys.epoch) is None:
            return 0, 0
    drained, last = 0, None
    try:
        await redis.unlink(keys.key("open"))
        last = await last_number(redis, keys)
        persister = Persister(redis, pool, shards=[keys.shard], compensation=None)
        deadline = time.monotonic() + DRAIN_PATIENCE_S
        while time.monotonic() < deadline and not persister.halted and await _mark(pool, keys) < last:
            try:
                drained += await persister.step(_DRAIN_BLOCK_MS)
            except LostRace:
                # A keeper drains it too: begin again from where that one came.
                persister = Persister(redis, pool, shards=[keys.shard], compensation=None)
    except (RedisError, OSError, TimeoutError) as error:
        _log.warning("shard %d: epoch %d is not drained: %s", keys.shard, keys.epoch, error)
    return drained, 0 if last is None else last - await _mark(pool, keys)


@asynccontextmanager
async def sealed(connection: Connection, shard: int, before: ShardState) -> AsyncIterator[ShardControl]:
    """A transaction in which nobody else writes the shard, which must be in the state given. Raises Moved."""
    async with connection.transaction():
        await connection.execute(query("limit_lock_waits"), str(SEAL_PATIENCE_MS))
        await connection.execute(query("seal_shard"), SHARD_LOCKS, shard)
        control = (await read_controls(connection, [shard]))[shard]
        if state_of(control) != before:
            raise Moved(
                f"Shard {shard} is in mode {control.mode}, epoch {control.epoch}, and not as expected any more."
            )
        yield control


async def change_mode(
    connection: Connection, shard: int, after: ShardState, cause: Cause, details: Mapping[str, object]
) -> None:
    """Write a change down, within a sealed transaction."""
    await connection.execute(
        query("change_mode"),
        shard,
        after.epoch,
        after.mode.value,
        cause.reason,
        cause.actor,
        cause.pinned,
        msgspec.json.encode(details).decode(),
        CONTROL_CHANNEL,
    )


def state_of(control: ShardControl) -> ShardState:
    """A shard's state in the terms of the engine; one that was never declared is at the very beginning."""
    return ShardState(Mode(control.mode) if control.epoch else Mode.RECOVERING, control.epoch)


async def read_states(connection: Connection, shards: Iterable[int]) -> dict[int, ShardState]:
    """Who serves each shard now."""
    return {shard: state_of(control) for shard, control in (await read_controls(connection, shards)).items()}


async def _mark(pool: Pool, keys: ShardKeys) -> int:
    async with pool.acquire() as connection:
        rows = await connection.fetch(query("read_final_marks"), [keys.shard], [keys.epoch])
    return int(rows[0]["seq"]) if rows else 0
