"""Bringing events to the versions that this release works out.

An event's version is a digest of its document, so a release that digests in another way, or reads more out of the same
document, has other versions than Redis, and holds are refused as `stale_config`. The document is what decides: the
stored version may be ahead of it, and must never be put beside rules that it is not the digest of. So a keeper works
every version out anew when it starts, and changes those that differ, as an operator's `holdfast event open` would.
"""

import asyncio
import logging
from time import monotonic
from uuid import UUID

from holdfast.engine.audit import Actor
from holdfast.engine.epochs import Epochs
from holdfast.engine.errors import BackendError
from holdfast.engine.layout import EventState
from holdfast.engine.settings import Settings
from holdfast.engine.wire import Wire
from holdfast.persistence.catalogue import CatalogueError, list_events
from holdfast.persistence.event_desk import STATEMENT_TIMEOUT_MS, EventDesk, Unconfirmed
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, open_pool
from holdfast.persistence.row_lock_backend import RowLockBackend

# How often events are looked for whose version nobody has worked out yet.
LOOK_S = 30.0
_RETRY_S = 1.0

_ACTOR = Actor(user_agent="holdfast keep", notes="another release works out another version")

_log = logging.getLogger(__name__)


class Versions:
    """Looks at every event once, and again when its stored version changes."""

    def __init__(self) -> None:
        self._known: dict[UUID, str] = {}

    async def look(self, connection: Connection, desk: EventDesk) -> list[UUID]:
        """Bring what differs to this release's version; returns those events. One that cannot be is tried next time."""
        changed = []
        for event in await list_events(connection, None):
            if event.state == EventState.ARCHIVED or self._known.get(event.event_id) == event.config_version:
                continue
            began = monotonic()
            try:
                version, differed = await desk.refresh(event)
            except (CatalogueError, BackendError) as error:
                _log.warning("the version of event %s cannot be brought to this release: %s", event.event_id, error)
                continue
            self._known[event.event_id] = version
            if differed:
                changed.append(event.event_id)
                _log.info("event %s has the version that this release works out", event.event_id)
            # The keeper has more urgent things to do, and a large hall takes its processor for a while.
            await asyncio.sleep(monotonic() - began)
        return changed


async def keep_versions(settings: Settings) -> None:
    """Bring events to this release's versions until cancelled."""
    versions, epochs = Versions(), Epochs(settings.shards)
    async with (
        Wire(settings.redis_url) as wire,
        open_pool(
            settings.postgres_dsn,
            name="versions",
            min_size=0,
            max_size=2,
            statement_timeout_ms=STATEMENT_TIMEOUT_MS,
        ) as pool,
    ):
        redis = Unconfirmed(wire, shards=settings.shards, epoch=epochs.redis_epoch)
        rows = RowLockBackend(pool, shards=settings.shards)
        while True:
            pause_s = LOOK_S
            try:
                async with pool.acquire() as connection:
                    await versions.look(connection, EventDesk(connection, redis, rows, epochs, _ACTOR))
            except POSTGRES_ERRORS as error:
                _log.warning("the versions of events cannot be looked at, trying again: %s", error)
                pause_s = _RETRY_S
            await asyncio.sleep(pause_s)
