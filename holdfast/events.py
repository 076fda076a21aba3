"""The desk at which commands change events, on servers of their own connections, with failures in a sentence."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg

from holdfast.engine.acks import Acks
from holdfast.engine.audit import Actor
from holdfast.engine.background import beside
from holdfast.engine.durable import DurableBackend
from holdfast.engine.errors import BackendError, Uncommitted
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.policy import PolicyError
from holdfast.engine.settings import Settings, variable
from holdfast.engine.wire import Wire
from holdfast.errors import OperatorError
from holdfast.persistence.catalogue import CatalogueError
from holdfast.persistence.controls import read_epochs
from holdfast.persistence.event_desk import STATEMENT_TIMEOUT_MS, EventDesk, Unconfirmed
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, connect, open_pool
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.sql import query

_ACTOR = Actor(user_agent="holdfast event")


@asynccontextmanager
async def open_desk(settings: Settings, *, confirm_s: float = 0.0) -> AsyncIterator[EventDesk]:
    """Connect to both servers. Postgres says how many shards it was set up with, so that no setting can disagree.

    With `confirm_s` a change is done when Postgres has what Redis was told, which takes a keeper and may take so long.
    Whatever goes wrong with a server or with an event within the block ends as an OperatorError.
    """
    with server_errors_explained(), _event_errors_explained(confirm_s):
        connection = await connect(settings.postgres_dsn, name="event", statement_timeout_ms=STATEMENT_TIMEOUT_MS)
        try:
            epochs = await read_epochs(connection, await count_shards(connection))
            async with (
                Wire(settings.redis_url) as wire,
                open_pool(settings.postgres_dsn, name="event", min_size=0, max_size=1) as pool,
            ):
                rows = RowLockBackend(pool, shards=epochs.shards)
                redis = Unconfirmed(wire, shards=epochs.shards, epoch=epochs.redis_epoch)
                if not confirm_s:
                    yield EventDesk(connection, redis, rows, epochs, _ACTOR)
                    return
                acks = Acks()
                durable = DurableBackend(redis, acks, timeout_s=confirm_s)
                async with beside(follow_marks(settings.postgres_dsn, acks, epochs.shards, epochs)):
                    yield EventDesk(connection, durable, rows, epochs, _ACTOR)
        finally:
            await connection.close()


async def count_shards(connection: Connection) -> int:
    """How many shards Postgres was set up with, so that no setting can disagree."""
    shards = int(await connection.fetchval(query("count_shards")))
    if not shards:
        raise OperatorError("No shards are in service yet: start `holdfast up` or `holdfast keep`.")
    return shards


@contextmanager
def _event_errors_explained(confirm_s: float) -> Iterator[None]:
    try:
        yield
    except Uncommitted as error:
        raise OperatorError(
            f"Redis has the change, but Postgres did not confirm it within {confirm_s:g} seconds, so it may be lost "
            f"with Redis: see that `holdfast keep` runs, and run the same command again to find out."
        ) from error
    except CatalogueError as error:
        raise OperatorError(str(error)) from error
    except (LayoutError, PolicyError) as error:
        raise OperatorError(f"{error}.") from error


@contextmanager
def server_errors_explained() -> Iterator[None]:
    """Turn the failures of either server into a sentence."""
    try:
        yield
    except BackendError as error:
        raise OperatorError(f"The server named in {variable('redis_url')} cannot be used: {error}.") from error
    except asyncpg.UndefinedTableError as error:
        raise OperatorError("The database has no Holdfast schema yet: run `holdfast migrate`.") from error
    except POSTGRES_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise OperatorError(f"The server named in {variable('postgres_dsn')} cannot be used: {reason}.") from error
