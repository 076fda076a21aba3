"""The jobs of the keeper, each with the connections it needs. Any number of keepers may run them side by side."""

from collections.abc import Awaitable, Callable, Mapping

from redis.asyncio import Redis

from holdfast.engine.backend import Backend
from holdfast.engine.background import beside
from holdfast.engine.epochs import Epochs
from holdfast.engine.reaper import Reaper
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.settings import Settings
from holdfast.engine.wire import Wire
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.controls import follow_controls
from holdfast.persistence.persister import Persister
from holdfast.persistence.pool import open_pool
from holdfast.persistence.publisher import publish
from holdfast.persistence.recoverer import Recoverer
from holdfast.persistence.service import open_servers
from holdfast.persistence.snapshots import snapshot, sweep
from holdfast.persistence.versions import keep_versions

# A job runs until it is cancelled; one that ends by itself has failed.
Job = Callable[[Settings], Awaitable[None]]


async def reap(settings: Settings) -> None:
    """Expire holds past their time, in the shards that Redis serves."""
    epochs = Epochs(settings.shards)
    async with (
        Redis.from_url(settings.redis_url) as redis,
        Wire(settings.redis_url) as wire,
        beside(follow_controls(settings.postgres_dsn, epochs)),
    ):
        backend = RedisBackend(wire, shards=settings.shards, epoch=epochs.redis_epoch)
        await Reaper(redis, backend, shards=settings.shards, epoch=epochs.redis_epoch).run()


async def persist(settings: Settings) -> None:
    """Bring the log into Postgres."""
    async with (
        Redis.from_url(settings.redis_url) as redis,
        Wire(settings.redis_url) as wire,
        open_pool(settings.postgres_dsn, name="persister", min_size=0, statement_timeout_ms=None, resets=False) as pool,
    ):

        def backend_in(epoch: int) -> Backend:
            return RedisBackend(wire, shards=settings.shards, epoch=epoch)

        persister = Persister(
            redis,
            pool,
            shards=settings.shards,
            compensation=Compensation(backend_in, pool, redis),
            retention=settings.replay_retention_entries,
        )
        await persister.run()


async def recovering(settings: Settings) -> None:
    """Put shards into service, and bring back to Redis those that Postgres had to take over."""
    async with open_servers(settings, "recoverer") as servers:
        await Recoverer(servers, recover_after_s=settings.recover_after_s).run()


JOBS: Mapping[str, Job] = {
    "reaper": reap,
    "persister": persist,
    "recoverer": recovering,
    "publisher": publish,
    "snapshots": snapshot,
    "sweep": sweep,
    "versions": keep_versions,
}
