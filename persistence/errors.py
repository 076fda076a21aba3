"""What a violated constraint means to a caller: the one table from Postgres's names to Holdfast's outcomes."""

import asyncpg

from holdfast.engine.status import Status

# A constraint that is not here guards an invariant: its violation is a fault of Holdfast, not an outcome.
OUTCOMES = {
    "seat_held_by_another_user": Status.SEAT_HELD_BY_ANOTHER_USER,
    "seat_already_sold": Status.SEAT_NOT_AVAILABLE,
    "seat_holds_pkey": Status.HOLD_ID_REUSED,
    "events_pkey": Status.EVENT_EXISTS,
    "zones_capacity_positive": Status.INVALID_REQUEST,
}


def outcome_of(error: asyncpg.PostgresError) -> Status | None:
    """The outcome that an error of Postgres stands for, or nothing if nobody foresaw it."""
    return OUTCOMES.get(error.constraint_name or "")
