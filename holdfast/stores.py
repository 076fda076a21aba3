"""Both servers, as the commands that look after them use them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast.engine.keys import SHARD_COUNT
from holdfast.engine.settings import Settings, variable
from holdfast.errors import OperatorError
from holdfast.events import count_shards, server_errors_explained
from holdfast.persistence.pool import Connection, connect
from holdfast.persistence.reconcile import ReconcileError
from holdfast.persistence.recovery import RecoveryError
from holdfast.persistence.replay import ReplayError
from holdfast.persistence.retained_log import LogGap
from holdfast.persistence.transitions import Moved


class Stores(msgspec.Struct, frozen=True):
    """A connection to each server, and the number of shards that Postgres was set up with."""

    redis: Redis
    connection: Connection
    shards: int


@asynccontextmanager
async def open_stores(settings: Settings, name: str) -> AsyncIterator[Stores]:
    """Connect to both. What goes wrong with a server or with the work within the block ends as an OperatorError."""
    with failures_explained():
        async with open_redis(settings) as redis:
            connection = await connect(settings.postgres_dsn, name=name, statement_timeout_ms=None)
            try:
                yield Stores(redis, connection, await count_shards(connection))
            finally:
                await connection.close(timeout=1)


@asynccontextmanager
async def open_redis(settings: Settings) -> AsyncIterator[Redis]:
    """A client that fails at once instead of trying again in silence."""
    async with Redis.from_url(settings.redis_url, retry=Retry(NoBackoff(), 0)) as redis:
        yield redis


async def count_shards_in_redis(redis: Redis) -> int:
    """How many shards Redis was set up with, for when Postgres cannot be asked."""
    shards = int(await redis.get(SHARD_COUNT) or 0)
    if not shards:
        raise OperatorError("This Redis has no shards in service: start `holdfast up` or `holdfast keep`.")
    return shards


@contextmanager
def failures_explained() -> Iterator[None]:
    """Turn the failures of either server, and work that cannot be done, into a sentence."""
    try:
        with server_errors_explained():
            yield
    except RedisError as error:
        raise OperatorError(f"The server named in {variable('redis_url')} cannot be used: {error}.") from error
    except (ReplayError, ReconcileError, RecoveryError, Moved, LogGap) as error:
        raise OperatorError(str(error)) from error
