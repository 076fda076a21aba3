"""Giving back in Redis what Postgres refused."""

import logging
from collections.abc import Callable, Sequence

from holdfast.engine.backend import Backend, EventIds
from holdfast.engine.errors import BackendError
from holdfast.engine.status import Status
from holdfast.persistence.apply import Rejection
from holdfast.persistence.pool import Pool
from holdfast.persistence.sql import query

_log = logging.getLogger(__name__)


class Compensation:
    """Releases holds that Redis granted and Postgres has not. Safe to repeat.

    `backend_in` gives the backend of an epoch: a hold is given back in the epoch in which it was refused, and in no
    other, because there the same hold id may since have been granted for good.
    """

    def __init__(self, backend_in: Callable[[int], Backend], pool: Pool) -> None:
        self._backend_in = backend_in
        self._pool = pool

    async def __call__(self, rejections: Sequence[tuple[int, Rejection]]) -> None:
        """Release the holds, and note which were. What Redis does not take is tried again by `catch_up`."""
        released = []
        for epoch, rejection in rejections:
            if rejection.operation == "sell":
                # Redis says sold and Postgres does not: only a reconciliation of the event can mend that.
                _log.critical("sale of hold %s refused: %s; reconcile its event", rejection.hold_id, rejection.reason)
            elif await self._release(epoch, rejection):
                released.append(rejection.hold_id)
        if released:
            async with self._pool.acquire() as connection:
                await connection.execute(query("mark_compensated"), released)

    async def _release(self, epoch: int, rejection: Rejection) -> bool:
        event = EventIds(rejection.organization_id, rejection.event_id)
        try:
            backend = self._backend_in(epoch)
            reply = await backend.release_holds(event, [rejection.hold_id], user_id=None, reason="not_persisted")
        except BackendError as error:
            _log.warning("hold %s was refused by Postgres and is still to be released: %s", rejection.hold_id, error)
            return False
        return reply.status is not Status.FENCED

    async def catch_up(self) -> None:
        """Give back what a persister that died left behind."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(query("pending_compensations"))
        if rows:
            await self([(epoch, Rejection(*fields)) for epoch, *fields in rows])
