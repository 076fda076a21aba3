"""The jobs of the keeper, each with the connections it needs. Any number of keepers may run them side by side."""

from collections.abc import Awaitable, Callable, Mapping

from redis.asyncio import Redis

from holdfast.engine.reaper import Reaper
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.settings import Settings
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.wire import Wire
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.persister import Persister
from holdfast.persistence.pool import open_pool
from holdfast.persistence.publisher import publish
from holdfast.persistence.snapshots import snapshot, sweep

# A job runs until it is cancelled; one that ends by itself has failed.
Job = Callable[[Settings], Awaitable[None]]


async def reap(settings: Settings) -> None:
    """Put the shards into service, and expire holds past their time."""
    async with Redis.from_url(settings.redis_url) as redis, Wire(settings.redis_url) as wire:
        await open_shards(redis, settings.shards)
        backend = RedisBackend(wire, shards=settings.shards, epoch=FIRST_EPOCH)
        await Reaper(redis, backend, shards=settings.shards, epoch=FIRST_EPOCH).run()


async def persist(settings: Settings) -> None:
    """Bring the log into Postgres."""
    async with (
        Redis.from_url(settings.redis_url) as redis,
        Wire(settings.redis_url) as wire,
        open_pool(settings.postgres_dsn, name="persister", statement_timeout_ms=None, resets=False) as pool,
    ):
        backend = RedisBackend(wire, shards=settings.shards, epoch=FIRST_EPOCH)
        persister = Persister(
            redis,
            pool,
            shards=settings.shards,
            compensation=Compensation(backend, pool),
            retention=settings.replay_retention_entries,
        )
        await persister.run()


JOBS: Mapping[str, Job] = {
    "reaper": reap,
    "persister": persist,
    "publisher": publish,
    "snapshots": snapshot,
    "sweep": sweep,
}
