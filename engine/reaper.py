"""The reaper: gives the seats of abandoned holds back within seconds, a bounded batch at a time.

Any number may run at once. A batch is one atomic script, so two reapers never expire the same hold; a reaper that finds
nothing has done nothing.
"""

import asyncio
import logging
from typing import Any
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from holdfast.engine.backend import Backend
from holdfast.engine.cancellation import honour_cancellation
from holdfast.engine.epochs import EpochOf, epoch_function
from holdfast.engine.errors import BackendError, Fenced
from holdfast.engine.keys import ShardKeys
from holdfast.engine.records import unpack_ids
from holdfast.engine.status import Status
from holdfast.engine.telemetry import reaped, reaper_runs

REAP_BATCH = 50
REAP_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


class Reaper:
    """Expires overdue holds of every open event of the shards that Redis serves."""

    def __init__(self, redis: Redis, backend: Backend, *, shards: int, epoch: int | EpochOf) -> None:
        self._redis = redis
        self._backend = backend
        self._shards = range(shards)
        self._epoch_of = epoch_function(epoch)

    async def run(self, interval_s: float = REAP_INTERVAL_S) -> None:
        """Reap until cancelled. A server that does not answer is tried again at the next interval."""
        while True:
            honour_cancellation()
            try:
                expired = await self.reap()
            except (BackendError, RedisError, OSError) as error:
                reaper_runs["failed"].value += 1
                _log.warning("the reaper could not run: %s", error)
            else:
                reaper_runs["done"].value += 1
                if expired:
                    _log.info("expired %d holds", expired)
            await asyncio.sleep(interval_s)

    async def reap(self) -> int:
        """Expire every hold that is overdue now; returns how many."""
        expired = 0
        for shard in self._shards:
            try:
                epoch = self._epoch_of(shard)
            except Fenced:
                continue
            scopes: Any = await self._redis.smembers(ShardKeys(shard, epoch).key("events"))
            for scope in scopes:
                organization_id, event_id = unpack_ids(scope)
                expired += await self._reap_event(organization_id, event_id)
        return expired

    async def _reap_event(self, organization_id: UUID, event_id: UUID) -> int:
        expired = 0
        while True:
            reply = await self._backend.expire_holds(organization_id, event_id, limit=REAP_BATCH)
            if reply.status not in (Status.DONE, Status.EVENT_NOT_FOUND):
                _log.warning("event %s could not be reaped: %s", event_id, reply.status.name.lower())
            expired += reply.expired
            reaped.value += reply.expired
            if reply.expired < REAP_BATCH and reply.forgotten < REAP_BATCH:
                return expired
