"""The two stores behind the front end: where the application keeps them, and how it opens and closes them."""

from collections.abc import AsyncIterator

import asyncpg
import redis.asyncio
from aiohttp import web
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from holdfast.engine.settings import Settings

# A store that takes longer than this to say that it is there counts as absent.
ANSWER_TIMEOUT_SECONDS = 2.0

settings_key = web.AppKey("settings", Settings)
redis_key = web.AppKey("redis", redis.asyncio.Redis)
postgres_key = web.AppKey("postgres", asyncpg.Pool)


async def redis_client(app: web.Application) -> AsyncIterator[None]:
    """Open on start-up, close on clean-up. Connects lazily, so the front end starts while Redis is away."""
    app[redis_key] = redis.asyncio.from_url(
        app[settings_key].redis_url,
        socket_timeout=ANSWER_TIMEOUT_SECONDS,
        socket_connect_timeout=ANSWER_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    yield
    await app[redis_key].aclose()


async def postgres_pool(app: web.Application) -> AsyncIterator[None]:
    """Open on start-up, close on clean-up. Connects lazily, so the front end starts while Postgres is away."""
    app[postgres_key] = await asyncpg.create_pool(
        app[settings_key].postgres_dsn, min_size=0, timeout=ANSWER_TIMEOUT_SECONDS
    )
    yield
    await app[postgres_key].close()
