"""The audit of refusals, kept small: a flood of them must not drown the log of what happened.

Refusals are counted per event and outcome, and written every few seconds as one row with the count and the first few of
them in full. A single refusal thus has a row of its own; a million in one interval are one row that says so.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from holdfast.engine.audit import Caller
from holdfast.engine.status import Status
from holdfast.persistence.apply import columns
from holdfast.persistence.pool import POSTGRES_ERRORS, Pool
from holdfast.persistence.sql import query

FLUSH_S = 5.0
SAMPLES = 5

_log = logging.getLogger(__name__)


class Refusal(msgspec.Struct, frozen=True):
    """One refused request, as the audit shows it."""

    user_id: UUID
    seat_ids: tuple[str, ...]
    ip_address: str
    user_agent: str
    request_id: str
    at: datetime


class _Tally(msgspec.Struct):
    organization_id: UUID
    event_id: UUID
    status: Status
    count: int
    samples: list[Refusal]


# Organisation, event and outcome, as numbers: looked up without the help of Python code.
_Key = tuple[int, int, int]


class RefusalAudit:
    """Counts refusals of this process, and writes the tallies to the audit log."""

    def __init__(self) -> None:
        self._tallies: dict[_Key, _Tally] = {}

    def record(
        self,
        organization_id: UUID,
        event_id: UUID,
        status: Status,
        *,
        user_id: UUID,
        seat_ids: tuple[str, ...],
        caller: Callable[[], Caller],
    ) -> None:
        """Note a refusal. Cheap enough for every one of them."""
        key = (organization_id.int, event_id.int, status)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(organization_id, event_id, status, 0, [])
        tally.count += 1
        if len(tally.samples) < SAMPLES:
            who, now = caller(), datetime.now(UTC)
            tally.samples.append(Refusal(user_id, seat_ids, who.address, who.user_agent, who.request_id, now))

    async def flush(self, pool: Pool) -> int:
        """Write what was noted since the last time; returns how many rows that were. What cannot be written is kept."""
        tallies, self._tallies = self._tallies, {}
        if not tallies:
            return 0
        rows = []
        for tally in tallies.values():
            first = tally.samples[0]
            changes = {"reason": tally.status.name.lower(), "count": tally.count, "samples": tally.samples}
            rows.append(
                (
                    tally.organization_id,
                    tally.event_id,
                    first.user_id if tally.count == 1 else None,
                    msgspec.json.encode(changes).decode(),
                    first.ip_address if tally.count == 1 else "",
                    first.user_agent if tally.count == 1 else "",
                    first.request_id if tally.count == 1 else "",
                    first.at,
                )
            )
        try:
            async with pool.acquire() as connection:
                await connection.execute(query("insert_refusals"), *columns(rows))
        except POSTGRES_ERRORS:
            self._take_back(tallies)
            raise
        return len(rows)

    async def run(self, pool: Pool, interval_s: float = FLUSH_S) -> None:
        """Write the tallies until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    await self.flush(pool)
                except POSTGRES_ERRORS as error:
                    _log.warning("refusals could not be written to the audit log, trying again: %s", error)
        finally:
            await self.flush(pool)

    def _take_back(self, tallies: dict[_Key, _Tally]) -> None:
        """Keep tallies that could not be written, together with what was noted meanwhile."""
        for key, tally in tallies.items():
            newer = self._tallies.get(key)
            if newer is not None:
                tally.count += newer.count
                tally.samples = (tally.samples + newer.samples)[:SAMPLES]
            self._tallies[key] = tally
