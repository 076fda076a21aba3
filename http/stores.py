"""What is behind the front end: where the application keeps it, and how it is opened and closed.

Nothing here fails because a server is away: the front end starts, says that it is not ready, and connects when it can.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from uuid import UUID

import asyncpg
import redis.asyncio
from aiohttp import web
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from holdfast.engine.acks import Acks
from holdfast.engine.audit import Actor, RefusalLog
from holdfast.engine.background import beside
from holdfast.engine.breaker import Breakers
from holdfast.engine.catalogue import Catalogue
from holdfast.engine.checkouts import Checkouts
from holdfast.engine.durable import DurableBackend
from holdfast.engine.epochs import Epochs
from holdfast.engine.errors import BackendError, Unavailable, Unknown
from holdfast.engine.failover import FailoverService
from holdfast.engine.hot_cache import HotCache
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.monitor import Monitor
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.service import HoldService
from holdfast.engine.settings import Settings
from holdfast.engine.wire import Wire
from holdfast.persistence.ballot import FRONT_END, Ballot, process_name
from holdfast.persistence.catalogue import list_event_ids, load_event
from holdfast.persistence.checkouts import StoredCheckouts
from holdfast.persistence.controls import check_current
from holdfast.persistence.event_changes import follow_event_changes
from holdfast.persistence.event_desk import STATEMENT_TIMEOUT_MS, EventDesk
from holdfast.persistence.hot_counts import ASK_CHANNEL, HotTeller
from holdfast.persistence.kept_answers import KeptAnswers
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, borrowed, open_pool
from holdfast.persistence.refusals import RefusalAudit
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.stored_holds import StoredHolds
from holdfast.persistence.watch import unless_silent

# A store that takes longer than this to say that it is there counts as absent.
ANSWER_TIMEOUT_SECONDS = 2.0

# How long a change of an event waits for others to be done.
DESK_PATIENCE_S = 10.0

_FOLLOW_AGAIN_S = 0.5

settings_key = web.AppKey("settings", Settings)
# Set once no new connections are taken and what is under way is being finished.
stopping_key = web.AppKey("stopping", asyncio.Event)
redis_key = web.AppKey("redis", redis.asyncio.Redis)
postgres_key = web.AppKey("postgres", asyncpg.Pool)
# A key wants a class that can be made, which a protocol is not.
holds_key: web.AppKey[HoldService] = web.AppKey("holds")
catalogue_key = web.AppKey("catalogue", Catalogue)
breakers_key = web.AppKey("breakers", Breakers)
epochs_key = web.AppKey("epochs", Epochs)
hot_cache_key = web.AppKey("hot_cache", HotCache)
checkouts_key = web.AppKey("checkouts", Checkouts)
stored_holds_key = web.AppKey("stored_holds", StoredHolds)
kept_answers_key = web.AppKey("kept_answers", KeptAnswers)
durable_key = web.AppKey("durable", DurableBackend)
rows_key = web.AppKey("rows", RowLockBackend)
desk_key = web.AppKey("desk", asyncpg.Pool)
refusals_key: web.AppKey[RefusalLog] = web.AppKey("refusals")

_log = logging.getLogger(__name__)


async def redis_client(app: web.Application) -> AsyncIterator[None]:
    """Redis for what need not be fast."""
    app[redis_key] = redis.asyncio.from_url(
        app[settings_key].redis_url,
        socket_timeout=ANSWER_TIMEOUT_SECONDS,
        socket_connect_timeout=ANSWER_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    yield
    await app[redis_key].aclose()


async def postgres_pool(app: web.Application) -> AsyncIterator[None]:
    """Postgres, for catalogue and audit. It connects when first used."""
    async with open_pool(app[settings_key].postgres_dsn, name="front end", min_size=0) as pool:
        app[postgres_key] = pool
        yield


@contextlib.asynccontextmanager
async def database(app: web.Application) -> AsyncIterator[Connection]:
    """A connection for the block, which changes nothing. Raises Unavailable when Postgres is away."""
    with asking_postgres():
        async with borrowed(app[postgres_key]) as connection:
            yield connection


@contextlib.asynccontextmanager
async def changing_database(app: web.Application) -> AsyncIterator[Connection]:
    """A connection for the block. Raises Unknown when Postgres goes away in the middle: it may have done all of it."""
    with asking_postgres():
        async with borrowed(app[postgres_key]) as connection:
            try:
                yield connection
            except POSTGRES_ERRORS as error:
                raise Unknown(f"Postgres has not answered: {error!r}") from error


@contextlib.contextmanager
def asking_postgres() -> Iterator[None]:
    """For what takes a connection only if it needs one. Raises Unavailable when Postgres is away."""
    try:
        yield
    except POSTGRES_ERRORS as error:
        raise Unavailable(f"Postgres cannot answer: {error!r}") from error


@contextlib.contextmanager
def asking_redis() -> Iterator[None]:
    """For what asks Redis directly. Raises Unavailable when it is away."""
    try:
        yield
    except RedisError as error:
        raise Unavailable(f"Redis cannot answer: {error!r}") from error


async def hold_service(app: web.Application) -> AsyncIterator[None]:
    """The engine: decides in Redis and answers when Postgres has it, or decides in Postgres while Redis is away."""
    settings, acks = app[settings_key], Acks()
    epochs = app[epochs_key] = Epochs(settings.shards)
    breakers = app[breakers_key] = Breakers(epochs, failures=settings.breaker_failures)
    async with (
        Wire(settings.redis_url) as wire,
        open_pool(settings.postgres_dsn, name="fallback", min_size=0) as rows,
        # Apart, so that no crowd of holds keeps this process from saying that it is alive.
        open_pool(settings.postgres_dsn, name="votes", min_size=0, max_size=2) as votes,
    ):
        backend = RedisBackend(
            wire, shards=settings.shards, epoch=epochs.redis_epoch, max_backlog=settings.max_backlog_entries
        )
        durable = app[durable_key] = DurableBackend(backend, acks, is_current=partial(check_current, rows, epochs))
        fallback = app[rows_key] = RowLockBackend(rows, shards=settings.shards)
        app[holds_key] = FailoverService(durable, fallback, epochs, breakers)
        ballot = Ballot(votes, FRONT_END)
        monitor = Monitor(wire, epochs, breakers, ballot.report, probe_s=settings.breaker_probe_s)
        async with beside(follow_marks(settings.postgres_dsn, acks, settings.shards, epochs), monitor.run()):
            yield
        await ballot.withdraw()


async def catalogue(app: web.Application) -> AsyncIterator[None]:
    """The compiled events, kept up with Postgres."""

    async def load(organization_id: UUID, event_id: UUID) -> CompiledEvent | None:
        async with database(app) as connection:
            return await load_event(connection, organization_id, event_id)

    async def list_ids(organization_id: UUID) -> tuple[UUID, ...]:
        async with database(app) as connection:
            return await list_event_ids(connection, organization_id)

    events = app[catalogue_key] = Catalogue(load, list_ids)
    # Asked on the connection that is there anyway.
    teller = HotTeller(app[postgres_key], process_name(FRONT_END), lambda: app[hot_cache_key])
    follow = follow_event_changes(
        app[settings_key].postgres_dsn, events.forget, events.forget_all, {ASK_CHANNEL: teller.hear}
    )
    async with beside(follow):
        yield


async def desk(app: web.Application) -> AsyncIterator[None]:
    """Connections for changes of events, few, because each may take long."""
    async with open_pool(
        app[settings_key].postgres_dsn,
        name="desk",
        min_size=0,
        max_size=2,
        statement_timeout_ms=STATEMENT_TIMEOUT_MS,
    ) as pool:
        app[desk_key] = pool
        yield


@contextlib.asynccontextmanager
async def desk_connection(app: web.Application) -> AsyncIterator[Connection]:
    """A connection for work that may take long, as long as Postgres answers others.

    Raises Unavailable when Postgres is away, and Unknown when it falls silent in the middle.
    """
    with asking_postgres():
        async with (
            unless_silent(app[settings_key].postgres_dsn) as watch,
            app[desk_key].acquire(timeout=DESK_PATIENCE_S) as connection,
        ):
            watch.guard(connection)
            yield connection


@contextlib.asynccontextmanager
async def event_desk(app: web.Application, actor: Actor) -> AsyncIterator[EventDesk]:
    """A desk for the block, with the engine's own backends."""
    async with desk_connection(app) as connection:
        yield EventDesk(connection, app[durable_key], app[rows_key], app[epochs_key], actor)


async def hot_cache(app: web.Application) -> AsyncIterator[None]:
    """What is known to be taken, fed by the log for as long as Redis can be followed."""
    cache = app[hot_cache_key] = HotCache()

    async def follow() -> None:
        while True:
            try:
                async with Wire(app[settings_key].redis_url) as wire:
                    await cache.follow(wire, app[epochs_key])
            except (TimeoutError, BackendError) as error:
                _log.warning("the hot cache cannot follow the log, trying again: %r", error)
            await asyncio.sleep(_FOLLOW_AGAIN_S)

    async with beside(follow()):
        yield


async def checkouts(app: web.Application) -> AsyncIterator[None]:
    """What Postgres remembers: checkouts, holds that ended long ago, and the answers that repeats are given."""
    app[checkouts_key] = Checkouts(app[holds_key], StoredCheckouts(app[postgres_key]))
    app[stored_holds_key] = StoredHolds(app[postgres_key])
    app[kept_answers_key] = KeptAnswers(app[postgres_key])
    yield


async def refusal_audit(app: web.Application) -> AsyncIterator[None]:
    """The audit of refusals, written every few seconds and at the end."""
    audit = RefusalAudit()
    app[refusals_key] = audit
    async with beside(audit.run(app[postgres_key])):
        yield
