"""What keepers do to Postgres by the clock: a snapshot of every event each minute, and the end of what is overdue.

Both may be done by any number of keepers. A minute has one snapshot of an event, whoever takes it first. The sweep is
the safety net below the reaper: it ends rows that are well past their end and that no entry of the log has ended. It
writes behind the shard's fence and with its mark locked, and in a shard served from Redis only when everything that
was in the log before is applied: an extension that waits there still counts. In a shard that Postgres serves it is the
reaper.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from redis.asyncio import Redis
from redis.exceptions import RedisError

from holdfast.engine import telemetry
from holdfast.engine.cancellation import honour_cancellation
from holdfast.engine.settings import Settings
from holdfast.persistence.apply import columns
from holdfast.persistence.fence import ShardControl, enter_shard, read_controls
from holdfast.persistence.kept_answers import forget_answers
from holdfast.persistence.pool import POSTGRES_ERRORS, Pool, open_pool
from holdfast.persistence.retained_log import last_number
from holdfast.persistence.sql import query

SNAPSHOT_INTERVAL_S = 60.0
SWEEP_INTERVAL_S = 2.0
SWEEP_GRACE_S = 30.0

_SWEEP_BATCH = 500
_SWEPT_BY = "holdfast sweep"
# A hold that lapses ends no checkout, and nobody ends it for another.
_NO_CHECKOUT = ("", "", "", "")

_log = logging.getLogger(__name__)


async def snapshot(settings: Settings) -> None:
    """Take a snapshot of every event each minute, until cancelled."""
    async with open_pool(
        settings.postgres_dsn, name="snapshots", min_size=0, max_size=1, statement_timeout_ms=None
    ) as pool:

        async def take() -> None:
            await take_snapshots(pool)

        await _every(SNAPSHOT_INTERVAL_S, take, "no snapshot was taken")


async def sweep(settings: Settings) -> None:
    """End overdue rows and forget old answers every few seconds, until cancelled."""
    async with (
        Redis.from_url(settings.redis_url) as redis,
        open_pool(settings.postgres_dsn, name="sweep", min_size=0, max_size=1, statement_timeout_ms=None) as pool,
    ):

        async def end() -> None:
            if ended := await sweep_overdue(redis, pool):
                _log.warning("%d holds were overdue and not ended by the log: does a reaper run?", ended)
            await forget_answers(pool)

        await _every(SWEEP_INTERVAL_S, end, "overdue rows were not swept")


async def take_snapshots(pool: Pool) -> int:
    """Note the counters of every event that is or was on sale, for this minute; returns how many were new."""
    async with pool.acquire() as connection:
        return len(await connection.fetch(query("take_snapshots")))


async def sweep_overdue(redis: Redis, pool: Pool, grace_s: float = SWEEP_GRACE_S) -> int:
    """End the active rows that have been overdue for longer than the grace; returns how many holds that were.

    There is no grace in a shard that Postgres serves, and what is ended there does not count: nobody else would do it.
    """
    async with pool.acquire() as connection:
        shards = [(row["shard"], row["mode"]) for row in await connection.fetch(query("find_overdue_shards"), grace_s)]
    ended = 0
    for shard, mode in shards:
        while swept := await _sweep_shard(redis, pool, shard, 0 if mode == "db" else grace_s):
            telemetry.expired.value += swept
            ended += swept if mode != "db" else 0
            if swept < _SWEEP_BATCH:
                break
    return ended


async def _sweep_shard(redis: Redis, pool: Pool, shard: int, grace_s: float) -> int:
    async with pool.acquire() as connection:
        # In this order: what the mark must have reached is what Redis had when the rows were overdue already.
        overdue_at: datetime = await connection.fetchval(query("moment_before"), grace_s)
        control = (await read_controls(connection, [shard]))[shard]
        needed = await last_number(redis, control.keys) if control.mode == "redis" else 0
        async with connection.transaction():
            if not _may_sweep(await enter_shard(connection, shard), control, needed):
                return 0
            rows = await connection.fetch(query("find_overdue_holds"), shard, overdue_at, _SWEEP_BATCH)
            if not rows:
                return 0
            ends = [
                (
                    row["hold_id"],
                    "expired",
                    "ttl_expired",
                    row["now"],
                    row["epoch"],
                    row["seq"],
                    "",
                    _SWEPT_BY,
                    "",
                    row["event_id"],
                    *_NO_CHECKOUT,
                )
                for row in rows
            ]
            return len(await connection.fetch(query("apply_ends"), *columns(ends)))


def _may_sweep(now: ShardControl, before: ShardControl, needed: int) -> bool:
    """Whether nothing that Redis knew of the shard's holds is still on its way, or nobody but Postgres serves it."""
    same = (now.epoch, now.mode) == (before.epoch, before.mode)
    return same and (now.mode == "db" or (now.mode == "redis" and now.mark >= needed))


async def _every(interval_s: float, work: Callable[[], Awaitable[None]], failure: str) -> None:
    """Do something at every full interval of the clock on the wall. Servers that do not answer are tried again then."""
    while True:
        honour_cancellation()
        try:
            await work()
        except (RedisError, *POSTGRES_ERRORS) as error:
            _log.warning("%s, trying again later: %s", failure, error)
        await asyncio.sleep(interval_s - time.time() % interval_s)
