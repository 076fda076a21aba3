"""How full events are, counted in Postgres, and where those who want to know are told."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any, Self
from uuid import UUID

import msgspec

from holdfast.engine.sharing import Shared
from holdfast.persistence.pool import Connection, SingleQueries
from holdfast.persistence.sql import query

CACHE_SECONDS = 10.0
CACHED_EVENTS_MAX = 1_000

_PARTS = ("capacity", "held", "sold", "blocked", "free", "wheelchair", "companion", "kept")

# An organisation and one of its events.
Scope = tuple[UUID, UUID]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Places, and their shares of the capacity in percent with one decimal.

    A seated zone may have more seats than its capacity. Then `free` is what can still be sold, and the parts need not
    add up to the capacity. `wheelchair` and `companion` seats are among the free ones, and `kept` ones among the
    companion seats: nobody has them, but they are for the buyers of certain wheelchair seats.
    """

    capacity: int
    held: int
    sold: int
    blocked: int
    free: int
    percent_held: float
    percent_sold: float
    percent_blocked: float
    percent_free: float
    wheelchair: int = 0
    companion: int = 0
    kept: int = 0

    @classmethod
    def of(
        cls,
        *,
        capacity: int,
        held: int,
        sold: int,
        blocked: int,
        free: int,
        wheelchair: int = 0,
        companion: int = 0,
        kept: int = 0,
    ) -> Self:
        def percent(part: int) -> float:
            return round(100 * part / capacity, 1) if capacity else 0.0

        return cls(
            capacity=capacity,
            held=held,
            sold=sold,
            blocked=blocked,
            free=free,
            percent_held=percent(held),
            percent_sold=percent(sold),
            percent_blocked=percent(blocked),
            percent_free=percent(free),
            wheelchair=wheelchair,
            companion=companion,
            kept=kept,
        )


class ZoneOccupancy(msgspec.Struct, frozen=True):
    zone_id: str
    name: str
    figures: Figures


class Occupancy(msgspec.Struct, frozen=True):
    """An event's zones in their order, and the sum of them. An event that does not exist has none."""

    organization_id: UUID
    event_id: UUID
    zones: tuple[ZoneOccupancy, ...]
    total: Figures


async def occupancy(connection: Connection | SingleQueries, organization_id: UUID, event_id: UUID) -> Occupancy:
    """One event's occupancy as it is committed now."""
    scope = (organization_id, event_id)
    return (await occupancies(connection, [scope]))[scope]


async def occupancies(connection: Connection | SingleQueries, scopes: Iterable[Scope]) -> dict[Scope, Occupancy]:
    """The occupancy of several events, counted in one query. Every scope asked for is in the answer."""
    wanted = list(dict.fromkeys(scopes))
    rows = await connection.fetch(
        query("count_occupancy"), [scope[0] for scope in wanted], [scope[1] for scope in wanted]
    )
    found = {
        scope: tuple(_zone(row) for row in group)
        for scope, group in groupby(rows, key=lambda row: (row["organization_id"], row["event_id"]))
    }
    return {scope: _sum(scope, found.get(scope, ())) for scope in wanted}


def channel_of(organization_id: UUID, event_id: UUID) -> str:
    """The pub/sub channel on which an event's changes are announced."""
    return f"occupancy:{organization_id}:{event_id}"


class _Entry:
    """What the cache knows about one event. `changes` tells a count that began before a change from a newer one."""

    def __init__(self) -> None:
        self.counting: Shared[Occupancy] = Shared()
        self.counting_since = 0
        self.changes = 0
        self.figures: Occupancy | None = None
        self.until = 0.0


class OccupancyCache:
    """Occupancy that is at most ten seconds old, and not older than the last change this process was told of.

    Callers that ask for the same event at once share one count.
    """

    def __init__(self, *, ttl_s: float = CACHE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: dict[Scope, _Entry] = {}

    async def get(self, connection: Connection | SingleQueries, organization_id: UUID, event_id: UUID) -> Occupancy:
        """The occupancy of an event, counted only if what is known about it is too old."""
        entry = self._entry((organization_id, event_id))
        if entry.figures is not None and self._clock() < entry.until:
            return entry.figures
        if entry.counting_since != entry.changes:
            # What is being counted began before a change, of which this caller may know.
            entry.counting, entry.counting_since = Shared(), entry.changes
        return await entry.counting.run(partial(self._count, entry, connection, organization_id, event_id))

    async def _count(
        self, entry: _Entry, connection: Connection | SingleQueries, organization_id: UUID, event_id: UUID
    ) -> Occupancy:
        changes, until = entry.changes, self._clock() + self._ttl_s
        figures = await occupancy(connection, organization_id, event_id)
        if entry.changes == changes:
            entry.figures, entry.until = figures, until
        return figures

    def put(self, figures: Occupancy) -> None:
        """Remember a count that was made just now, for whoever asks next."""
        entry = self._entry((figures.organization_id, figures.event_id))
        entry.changes += 1
        entry.figures, entry.until = figures, self._clock() + self._ttl_s

    def forget(self, organization_id: UUID, event_id: UUID) -> None:
        """The event has changed: the next to ask counts anew."""
        if entry := self._entries.get((organization_id, event_id)):
            entry.changes += 1
            entry.figures = None

    def _entry(self, scope: Scope) -> _Entry:
        if scope not in self._entries and len(self._entries) >= CACHED_EVENTS_MAX:
            now = self._clock()
            self._entries = {
                known: entry for known, entry in self._entries.items() if entry.until > now or entry.counting.under_way
            }
        return self._entries.setdefault(scope, _Entry())


def _zone(row: Any) -> ZoneOccupancy:
    figures = Figures.of(**{part: row[part] for part in _PARTS})
    return ZoneOccupancy(row["zone_id"], row["name"], figures)


def _sum(scope: Scope, zones: tuple[ZoneOccupancy, ...]) -> Occupancy:
    parts = [zone.figures for zone in zones]
    total = Figures.of(**{name: sum(getattr(part, name) for part in parts) for name in _PARTS})
    return Occupancy(*scope, zones, total)
