"""One number for everything that matters in the database: two that have it in common say the same of every seat.

It covers holds, seats, tickets, checkouts and the counters of zones, in a fixed order. Left out is what may differ
between two databases that were brought about by the same log:

- the numbers and times of applying (`epoch`, `seq`, `updated_at`, those of a checkout), and how often a seat changed
  (`version`, `locked_at`);
- who ended a hold past its end, and when. The reaper ends it by an entry of the log, the sweep without one, and a
  replay ends it by that entry only. A hold past its end therefore counts as expired whether or not it has been ended,
  and an expired one has no time of ending. That makes the digest one of a moment: two are comparable at the same
  moment, which is what `at` is for.
"""

from datetime import datetime
from hashlib import sha256

from holdfast.persistence.fence import frozen
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query

TABLES = ("seat_holds", "seats", "tickets", "checkouts", "zones")

_PREFETCH = 5_000


async def clock(connection: Connection) -> datetime:
    """The moment it is for this database."""
    now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return now


async def digest(connection: Connection, at: datetime | None = None) -> str:
    """SHA-256 of the rows that matter, in hexadecimal, as they are at a moment (default: now)."""
    async with frozen(connection):
        moment = at or await clock(connection)
        found = sha256()
        for table in TABLES:
            found.update(f"{table}\n".encode())
            async for row in connection.cursor(query(f"digest_{table}"), moment, prefetch=_PREFETCH):
                found.update(f"{row['line']}\n".encode())
    return found.hexdigest()
