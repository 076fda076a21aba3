"""Holds as Postgres has them, which forgets none."""

from uuid import UUID

import msgspec

from holdfast.engine.backend import StoredHold
from holdfast.engine.errors import Unavailable
from holdfast.persistence.pool import POSTGRES_ERRORS, Pool, as_organization
from holdfast.persistence.row_lock_view import Held
from holdfast.persistence.sql import query

_HOLD = msgspec.json.Decoder(Held)


class FoundHold(msgspec.Struct, frozen=True):
    """A hold, its event, and the clock by which its time is over or not."""

    event_id: UUID
    hold: StoredHold
    now_ms: int


class StoredHolds:
    """Looks for holds that the engine no longer has on record."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, organization_id: UUID, user_id: UUID, hold_id: UUID) -> FoundHold | None:
        """A hold of this user in this organisation. Raises Unavailable."""
        try:
            async with as_organization(self._pool, organization_id) as connection:
                row = await connection.fetchrow(query("find_hold"), organization_id, user_id, hold_id)
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"the hold cannot be read: {error!r}") from error
        return FoundHold(row["event_id"], _HOLD.decode(row["hold"]).stored(), row["now_ms"]) if row else None
