"""What Postgres has of an event, as the checker wants it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

from holdfast.loadtest.chaos.checker import Stored, StoredHold
from holdfast.loadtest.chaos.history import Call
from holdfast.persistence.sql import query

# Asks Postgres: a statement and its arguments.
Fetch = Callable[..., Awaitable[Iterable[Any]]]

_HOLD_IDS = "SELECT DISTINCT hold_id FROM seat_holds WHERE event_id = $1"
_SEATS = "SELECT ordinal, seat_id FROM seats WHERE event_id = $1"


async def read_stored(fetch: Fetch, event_id: UUID, calls: Iterable[Call], since: Callable[[float], float]) -> Stored:
    """Every hold of the event and every one that buyers were told of; `since` puts times on the history's clock."""
    hold_ids = [row["hold_id"] for row in await fetch(_HOLD_IDS, event_id)]
    known = {told.hold_id for call in calls for told in call.told}
    wanted = [*hold_ids, *(UUID(hold_id) for hold_id in known - {str(each) for each in hold_ids})]
    seat_of = {row["ordinal"]: row["seat_id"] for row in await fetch(_SEATS, event_id)}
    holds: dict[str, StoredHold] = {}
    for row in await fetch(query("list_hold_rows"), wanted):
        hold_id = str(row["hold_id"])
        before = holds[hold_id].units if hold_id in holds else 0
        holds[hold_id] = StoredHold(
            status=row["status"],
            until_s=since(row["ends_ms"] / 1000),
            ended_s=since(row["ended_ms"] / 1000) if row["ended_ms"] else None,
            units=before + row["quantity"],
            reason=row["reason"] or "",
        )
    tickets = [
        (seat_of[row["ordinal"]] if row["ordinal"] is not None else None, str(row["hold_id"]))
        for row in await fetch(query("list_hold_tickets"), wanted)
    ]
    return Stored(holds, tickets)
