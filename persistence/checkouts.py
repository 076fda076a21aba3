"""Checkouts as Postgres has them."""

from uuid import UUID

import msgspec

from holdfast.engine.checkouts import CheckoutLine, CheckoutRecord, CheckoutStatus, Ticket
from holdfast.engine.errors import Unavailable
from holdfast.persistence.pool import POSTGRES_ERRORS, Pool, as_organization
from holdfast.persistence.sql import query

_LINES = msgspec.json.Decoder(tuple[CheckoutLine, ...])
_TICKETS = msgspec.json.Decoder(tuple[Ticket, ...])


class StoredCheckouts:
    """Implements engine.checkouts.CheckoutRecords."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, organization_id: UUID, checkout_id: UUID) -> CheckoutRecord | None:
        """A checkout of the organisation as it is at one moment. Raises Unavailable."""
        try:
            async with as_organization(self._pool, organization_id) as connection:
                row = await connection.fetchrow(query("find_checkout"), organization_id, str(checkout_id))
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"the checkout cannot be read: {error!r}") from error
        if row is None:
            return None
        return CheckoutRecord(
            checkout_id=checkout_id,
            organization_id=organization_id,
            event_id=row["event_id"],
            user_id=row["user_id"],
            status=CheckoutStatus(row["status"]),
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            lines=_LINES.decode(row["lines"]),
            tickets=_TICKETS.decode(row["tickets"]),
        )
