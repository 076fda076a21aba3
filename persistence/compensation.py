"""Giving back in Redis what Postgres refused."""

import logging
from collections.abc import Callable, Sequence

from redis.asyncio import Redis

from holdfast.engine.backend import Backend, EventIds
from holdfast.engine.errors import BackendError
from holdfast.engine.keys import ShardKeys
from holdfast.engine.status import Status
from holdfast.persistence.apply import Rejection
from holdfast.persistence.catalogue import load_event
from holdfast.persistence.operations import Administer
from holdfast.persistence.pool import Pool
from holdfast.persistence.retained_log import LogGap, read_operations
from holdfast.persistence.sql import query

_log = logging.getLogger(__name__)


class Compensation:
    """Releases holds, and unblocks seats, that Redis granted and Postgres has not. Safe to repeat.

    `backend_in` gives the backend of an epoch: a hold is given back in the epoch in which it was refused, and in no
    other, because there the same hold id may since have been granted for good.
    """

    def __init__(self, backend_in: Callable[[int], Backend], pool: Pool, redis: Redis) -> None:
        self._backend_in = backend_in
        self._pool = pool
        self._redis = redis

    async def __call__(self, rejections: Sequence[tuple[ShardKeys, Rejection]]) -> None:
        """Give back what was refused, and note what was. What Redis does not take is tried again by `catch_up`."""
        await self._give_back(rejections, again=False)

    async def catch_up(self) -> None:
        """Give back what a persister that died left behind."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(query("pending_compensations"))
        if rows:
            pending = [(ShardKeys(shard, epoch), Rejection(*fields)) for shard, epoch, *fields in rows]
            await self._give_back(pending, again=True)

    async def _give_back(self, rejections: Sequence[tuple[ShardKeys, Rejection]], *, again: bool) -> None:
        done = []
        unblocked: dict[tuple[ShardKeys, int], bool] = {}
        for shard, rejection in rejections:
            entry = shard, rejection.seq
            if rejection.operation == "sell":
                # Redis says sold and Postgres does not: only a reconciliation of the event can mend that.
                _log.critical("sale of hold %s refused: %s; reconcile its event", rejection.hold_id, rejection.reason)
            elif rejection.operation != "block":
                if await self._release(shard.epoch, rejection):
                    done.append(rejection.hold_id)
            else:
                if entry not in unblocked:
                    unblocked[entry] = await self._unblock(shard, rejection, again=again)
                if unblocked[entry]:
                    done.append(rejection.hold_id)
        if done:
            async with self._pool.acquire() as connection:
                await connection.execute(query("mark_compensated"), done)

    async def _release(self, epoch: int, rejection: Rejection) -> bool:
        event = EventIds(rejection.organization_id, rejection.event_id)
        try:
            backend = self._backend_in(epoch)
            reply = await backend.release_holds(event, [rejection.hold_id], user_id=None, reason="not_persisted")
        except BackendError as error:
            _log.warning("hold %s was refused by Postgres and is still to be released: %s", rejection.hold_id, error)
            return False
        return reply.status is not Status.FENCED

    async def _unblock(self, shard: ShardKeys, rejection: Rejection, *, again: bool) -> bool:
        """Undo a block, all of it: a refusal leaves nothing behind.

        Places have no names. Where it may have been done before, places that others blocked could be put on sale, so
        they are left to the operator.
        """
        number = f"{shard.epoch}-{rejection.seq}"
        try:
            (operation,) = await read_operations(self._redis, shard, rejection.seq - 1, rejection.seq)
        except LogGap:
            _log.critical("the block in entry %s was refused and cannot be undone; reconcile its event", number)
            return True
        assert isinstance(operation, Administer)
        assert operation.block is not None
        async with self._pool.acquire() as connection:
            event = await load_event(connection, rejection.organization_id, rejection.event_id)
        if event is None:
            return True
        try:
            backend, block = self._backend_in(shard.epoch), operation.block
            places = () if again else block.quantities
            reply = await backend.unblock_seats(event, seats=block.seats, quantities=places)
        except BackendError as error:
            _log.warning("the block in entry %s was refused by Postgres and is still to be undone: %s", number, error)
            return False
        if places != block.quantities:
            _log.error("the block in entry %s was refused, and its places may still be blocked", number)
        return reply.status not in (Status.FENCED, Status.STALE_CONFIG)
