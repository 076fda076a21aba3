"""Whether Postgres and Redis balance once nothing is under way."""

import asyncio
import time
from uuid import UUID

import asyncpg
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from holdfast.engine.settings import Settings
from holdfast.persistence.pool import connect
from holdfast.persistence.verify import verify

_LOOK_AGAIN_S = 0.2


async def await_balance(settings: Settings, event_id: UUID, within_s: float) -> list[str]:
    """What `holdfast verify` finds wrong with an event and still finds after a while; nothing as soon as it balances.

    What is under way when traffic ends is allowed to end.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            findings = await _findings(settings, event_id)
        except (RedisError, asyncpg.PostgresError, OSError) as error:
            findings = [repr(error)]
        if not findings or time.monotonic() > deadline:
            return findings
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _findings(settings: Settings, event_id: UUID) -> list[str]:
    connection = await connect(settings.postgres_dsn, name="audit")
    try:
        async with Redis.from_url(settings.redis_url, socket_timeout=10.0, retry=Retry(NoBackoff(), 0)) as client:
            found = await verify(client, connection, settings.shards, event_id=event_id)
    finally:
        await connection.close()
    return [str(finding) for finding in found.findings]
