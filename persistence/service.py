"""Putting shards into service on a Redis server, at once and on purpose, as `holdfast up` does first of all."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.settings import Settings
from holdfast.engine.shards import find_broken
from holdfast.engine.wire import Wire
from holdfast.persistence.fence import read_controls
from holdfast.persistence.pool import Pool, open_pool
from holdfast.persistence.recovery import Recovery, recover
from holdfast.persistence.transitions import Cause, declare_shards, state_of, to_db

_REDIS_TIMEOUT_S = 5.0


class Servers(msgspec.Struct, frozen=True):
    """Connections to both servers, for those who change modes."""

    redis: Redis
    wire: Wire
    pool: Pool
    shards: int


@asynccontextmanager
async def open_servers(settings: Settings, name: str) -> AsyncIterator[Servers]:
    """Connect to both, each when it is first used: one that is away is no obstacle until then."""
    redis: Redis = Redis.from_url(
        settings.redis_url,
        socket_timeout=_REDIS_TIMEOUT_S,
        socket_connect_timeout=_REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    async with (
        redis,
        Wire(settings.redis_url) as wire,
        open_pool(settings.postgres_dsn, name=name, min_size=0, max_size=4, statement_timeout_ms=None) as pool,
    ):
        yield Servers(redis, wire, pool, settings.shards)


async def put_into_service(servers: Servers, actor: str) -> list[Recovery]:
    """Let Redis serve every shard, but those that an operator has taken from it; returns what had to be recovered.

    A shard that is served from a server that has since been restarted, emptied or replaced is taken to Postgres first.
    """
    async with servers.pool.acquire() as connection:
        await declare_shards(connection, servers.shards)
        controls = await read_controls(connection, range(servers.shards))
    states = {shard: state_of(control) for shard, control in controls.items()}
    served = {shard: state.epoch for shard, state in states.items() if state.mode is Mode.REDIS}
    broken = await find_broken(servers.wire, served)
    recovered = []
    for shard, state in states.items():
        before = state
        if shard in broken:
            moved = await to_db(servers.pool, shard, state, Cause(broken[shard], actor, level=logging.INFO))
            before = moved.after
        if before.mode is Mode.REDIS or controls[shard].pinned:
            continue
        cause = Cause(f"{actor} was started", actor, level=logging.INFO)
        recovered.append(await bring_back(servers, shard, before, cause))
    return recovered


async def bring_back(servers: Servers, shard: int, before: ShardState, cause: Cause) -> Recovery:
    """Recover one shard."""
    return await recover(
        servers.redis,
        servers.wire,
        servers.pool,
        shards=servers.shards,
        shard=shard,
        before=before,
        cause=cause,
    )
