"""Events in Postgres: the document as it was loaded, and its zones and seats as rows."""

import asyncio
from collections.abc import AsyncIterator, Container, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.backend import EventRef
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import (
    CompiledEvent,
    EventDocument,
    GroupType,
    SeatGroupDocument,
    ZoneDocument,
    compile_event,
)
from holdfast.engine.records import ZoneCounts
from holdfast.persistence.fence import SHARD_LOCKS
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query

# The class of these advisory locks, the bytes of "EVEN"; locks of other classes never meet them.
EVENT_LOCKS = 0x4556454E

# The channel on which those who keep events in memory hear that one has changed or come into being.
EVENTS_CHANNEL = "holdfast_events"

_DOCUMENT = msgspec.json.Decoder(EventDocument)
_SEAT_COLUMNS = (
    "event_id",
    "ordinal",
    "organization_id",
    "seat_id",
    "zone",
    "row",
    "number",
    "category",
    "status",
    "companion_of",
)


class CatalogueError(Exception):
    """An event that cannot be saved as it is; the text is one sentence for whoever sent it."""


class Missing(CatalogueError):
    """Something is named that the organisation does not have; another organisation's things do not exist for it."""


class NoSuchEvent(Missing):
    """There is no event of this id, or it is another organisation's."""


class SaveResult(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class EventSummary(msgspec.Struct, frozen=True):
    """What a list of events shows of each."""

    organization_id: UUID
    event_id: UUID
    name: str
    state: str
    config_version: str
    shard: int
    sale_start: datetime | None
    sale_end: datetime | None


async def save_event(connection: Connection, event: CompiledEvent, shards: int) -> SaveResult:
    """Save an event with its zones and seats, or take over what changed of one that is there, in one transaction.

    Names, state, window, policy and capacities may change. Seats may not, because holds and tickets refer to them by
    their ordinal. Raises CatalogueError.
    """
    document = msgspec.json.encode(event.document, order="deterministic").decode()
    shard = shard_of(event.event_id, shards)
    try:
        async with connection.transaction():
            # Behind the fence: a shard that is being brought to Redis takes this along, or waits for it.
            await connection.execute(query("lock_shards"), SHARD_LOCKS, [shard])
            await connection.execute(query("insert_organization"), event.organization_id)
            if await connection.fetchval(
                query("insert_event"),
                event.event_id,
                event.organization_id,
                event.document.name,
                event.document.state,
                shard,
                event.version,
                document,
                event.document.sale_start,
                event.document.sale_end,
                EVENTS_CHANNEL,
            ):
                await insert_zones(connection, event)
                await insert_seats(connection, event)
                return SaveResult.CREATED
            return await _update(connection, event, document, shard)
    except (asyncpg.UntranslatableCharacterError, asyncpg.CharacterNotInRepertoireError):
        raise CatalogueError("A name or an id contains the character NUL, which Postgres cannot keep.") from None


async def load_event(connection: Connection, organization_id: UUID, event_id: UUID) -> CompiledEvent | None:
    """An organisation's event, compiled, or nothing if it has no such event."""
    document = await connection.fetchval(query("load_event"), event_id, organization_id)
    if document is None:
        return None
    # A hundred thousand seats take long enough to keep everybody else waiting.
    return await asyncio.to_thread(lambda: compile_event(organization_id, _DOCUMENT.decode(document)))


async def set_event_version(connection: Connection, event: CompiledEvent) -> bool:
    """Note the version that an event's stored document has. Whether another one was noted."""
    row = await connection.fetchrow(
        query("update_event_version"), event.event_id, event.organization_id, event.version, EVENTS_CHANNEL
    )
    return row is not None


async def list_event_ids(connection: Connection, organization_id: UUID) -> tuple[UUID, ...]:
    """The ids of an organisation's events."""
    return tuple(row["id"] for row in await connection.fetch(query("list_event_ids"), organization_id))


async def list_events(
    connection: Connection, organization_id: UUID | None, event_id: UUID | None = None
) -> tuple[EventSummary, ...]:
    """The events of an organisation, or of all, oldest first; or one of them, if it is there."""
    rows = await connection.fetch(query("list_events"), organization_id, event_id)
    return tuple(EventSummary(**row) for row in rows)


async def organization_of(connection: Connection, event_id: UUID) -> UUID | None:
    """Whose an event is. For operators only: a caller with an organisation of its own names it."""
    found: UUID | None = await connection.fetchval(query("find_event_organization"), event_id)
    return found


async def read_counts(connection: Connection, event: CompiledEvent) -> tuple[ZoneCounts, ...]:
    """What Postgres counts in each zone of an event."""
    rows = await connection.fetch(query("read_zone_counts"), event.event_id, event.organization_id)
    return tuple(ZoneCounts(**row) for row in rows)


async def is_as_new(connection: Connection, event: CompiledEvent) -> bool:
    """Whether nothing is held, sold or blocked that the document does not block: only then may it open from that."""
    for counts, blocked in zip(await read_counts(connection, event), _blocked_seats(event), strict=True):
        if counts.held or counts.sold or counts.blocked != blocked:
            return False
    rows = await connection.fetch(query("list_taken_seats"), event.event_id, event.organization_id)
    blocked_ids = event.document.blocked_seat_ids
    return all(row["status"] == "blocked" and event.seat_at[row["ordinal"]].seat_id in blocked_ids for row in rows)


async def audit_event(
    connection: Connection,
    event: EventRef,
    action: str,
    changes: Mapping[str, object],
    actor: Actor,
) -> None:
    """Tell the audit what somebody has done to an event, where no entry of the log does."""
    await connection.execute(
        query("audit_event"),
        event.event_id,
        event.organization_id,
        action,
        msgspec.json.encode(changes).decode(),
        actor.address,
        actor.user_agent,
        actor.request_id,
        actor.user_id,
        actor.notes,
    )


@asynccontextmanager
async def changing(connection: Connection, event_id: UUID) -> AsyncIterator[None]:
    """One change of an event's configuration at a time, in Postgres and in Redis, across all processes.

    Without this the two could end up with the versions of different callers.
    """
    await connection.execute(query("begin_event_change"), EVENT_LOCKS, event_id)
    try:
        yield
    finally:
        # The lock of a lost connection is gone with it.
        if not connection.is_closed():
            await connection.execute(query("end_event_change"), EVENT_LOCKS, event_id)


async def insert_zones(connection: Connection, event: CompiledEvent, *, first: int = 0) -> None:
    """Insert the zones of an event, numbered from `first` on."""
    zones = [zone.document for zone in event.zones]
    await connection.execute(
        query("insert_zones"),
        event.event_id,
        event.organization_id,
        [first + zone.index for zone in event.zones],
        [zone.zone_id for zone in zones],
        [zone.zone_type for zone in zones],
        [zone.name for zone in zones],
        [zone.capacity for zone in zones],
        [len(zone.seats) for zone in zones],
        _blocked_seats(event),
    )


async def insert_seats(connection: Connection, event: CompiledEvent, *, without: Container[int] = ()) -> None:
    """Insert the seats of an event, without those whose ordinals are there already."""
    await connection.copy_records_to_table("seats", records=_seat_records(event, without), columns=_SEAT_COLUMNS)


def _seat_records(event: CompiledEvent, without: Container[int]) -> Iterator[tuple[object, ...]]:
    blocked = event.document.blocked_seat_ids
    companions = event.companions
    for ordinal, seat in event.seat_at.items():
        if ordinal in without:
            continue
        yield (
            event.event_id,
            ordinal,
            event.organization_id,
            seat.seat_id,
            event.seats[seat.seat_id].zone,
            seat.row,
            seat.number,
            seat.category,
            "blocked" if seat.seat_id in blocked else "available",
            companions.get(ordinal),
        )


def _blocked_seats(event: CompiledEvent) -> list[int]:
    """How many seats of each zone the document blocks."""
    blocked = event.document.blocked_seat_ids
    return [sum(seat.seat_id in blocked for seat in zone.document.seats) for zone in event.zones]


async def _update(connection: Connection, event: CompiledEvent, document: str, shard: int) -> SaveResult:
    stored: Any = await connection.fetchrow(query("lock_event"), event.event_id, document)
    if stored["organization_id"] != event.organization_id:
        raise NoSuchEvent(f"The event {event.event_id} belongs to another organisation.")
    if stored["shard"] != shard:
        raise CatalogueError(f"The event {event.event_id} was saved under another number of shards.")
    if stored["same_document"] and stored["config_version"] == event.version:
        return SaveResult.UNCHANGED
    if place := _difference(_DOCUMENT.decode(stored["document"]), event.document):
        raise CatalogueError(
            f"The event {event.event_id} has other {place}: names, state, window, policy and capacities of a saved "
            f"event may change, its zones and seats may not."
        )
    await connection.execute(
        query("update_event"),
        event.event_id,
        event.organization_id,
        event.document.name,
        event.document.state,
        event.version,
        document,
        event.document.sale_start,
        event.document.sale_end,
        EVENTS_CHANNEL,
    )
    await connection.execute(
        query("update_zones"),
        event.event_id,
        event.organization_id,
        [zone.index for zone in event.zones],
        [zone.document.name for zone in event.zones],
        [zone.document.capacity for zone in event.zones],
    )
    return SaveResult.CHANGED


def _difference(old: EventDocument, new: EventDocument) -> str | None:
    """The first place where two documents differ in what may not change, as the document calls it."""
    if [_identity(zone) for zone in old.zones] != [_identity(zone) for zone in new.zones]:
        return "zones"
    for index, (before, after) in enumerate(zip(old.zones, new.zones, strict=True)):
        if before.seats != after.seats:
            return f"zones[{index}].seats"
    if _pairs(old.seat_groups) != _pairs(new.seat_groups):
        return "seat_groups"
    return None if old.blocked_seat_ids == new.blocked_seat_ids else "blocked_seat_ids"


def _pairs(groups: tuple[SeatGroupDocument, ...]) -> list[tuple[str, ...]]:
    """The wheelchair pairs, by which companion seats are kept."""
    return [group.seat_ids for group in groups if group.group_type is GroupType.WHEELCHAIR_PAIR]


def _identity(zone: ZoneDocument) -> tuple[object, ...]:
    return zone.zone_id, zone.zone_type
