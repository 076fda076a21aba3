"""Layout documents, and the compiled event that hot paths use.

A compiled event is everything static about an event, in the form the scripts want it: seats by ordinal (their byte
in the map), zones by index, limits as one packed argument. It is identified by its version, a digest of all that,
so that a script can tell in one comparison whether the caller knows the event as it is.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from itertools import groupby
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.records import Pair, pack_rules, pack_zone_specs

SEPARATOR = b"|"
FREE = b"."
BLOCKED = b"b"
MAX_ORDINALS = 1 << 24

Positive = Annotated[int, Meta(ge=1, le=100_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class LayoutError(ValueError):
    """A layout document that cannot be compiled; the text names the place."""


class EventState(StrEnum):
    DRAFT = "draft"
    PUBLISHED = "published"
    LIVE = "live"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    ARCHIVED = "archived"

    @property
    def selling(self) -> int:
        """The code by which scripts know it: 1 sells, 2 is cancelled, 0 is anything else."""
        return {EventState.PUBLISHED: 1, EventState.LIVE: 1, EventState.CANCELLED: 2}.get(self, 0)


class ZoneType(StrEnum):
    RESERVED_SEATING = "reserved_seating"
    GA_SEATED = "ga_seated"
    GA_STANDING = "ga_standing"
    VIP_RESERVED = "vip_reserved"
    VIP_STANDING = "vip_standing"

    @property
    def seated(self) -> bool:
        """Whether the zone has individual seats, rather than a number of places."""
        return self in (ZoneType.RESERVED_SEATING, ZoneType.VIP_RESERVED)


class SeatCategory(StrEnum):
    STANDARD = "standard"
    WHEELCHAIR = "wheelchair"
    COMPANION = "companion"
    RESTRICTED_VIEW = "restricted_view"
    AISLE = "aisle"


class SeatDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seat. Within a zone the best row comes first, and seats of a row in the order they stand."""

    seat_id: Name
    row: Name
    number: Annotated[int, Meta(ge=0, le=100_000)]
    category: SeatCategory = SeatCategory.STANDARD
    coordinates: dict[str, float] | None = None


class ZoneDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    zone_id: Name
    zone_type: ZoneType
    name: Name
    capacity: Positive
    seats: tuple[SeatDocument, ...] = ()


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of an event; None and 0 mean no limit."""

    default_hold_ttl_minutes: Annotated[int, Meta(ge=1, le=1440)] = 10
    checkout_extension_minutes: Annotated[int, Meta(ge=1, le=1440)] = 5
    max_hold_total_minutes: Annotated[int, Meta(ge=1, le=1440)] = 20
    max_seats_per_booking: Annotated[int, Meta(ge=1, le=100)] = 10
    max_holds_per_user: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    max_holds_per_ip: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    rate_limit_seats: Annotated[int, Meta(ge=0, le=10_000)] = 10
    rate_limit_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300


class EventDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `event load` reads: an event with its layout."""

    event_id: UUID
    name: Name
    zones: Annotated[tuple[ZoneDocument, ...], Meta(min_length=1, max_length=1000)]
    state: EventState = EventState.DRAFT
    sale_start: datetime | None = None
    sale_end: datetime | None = None
    blocked_seat_ids: frozenset[str] = frozenset()
    policy: Policy = Policy()


class Zone(msgspec.Struct, frozen=True):
    """A zone as scripts know it: its index, and its stretch of the map (empty for general admission)."""

    index: int
    document: ZoneDocument
    first: int
    length: int

    @property
    def last(self) -> int:
        return self.first + self.length - 1


class CompiledEvent(msgspec.Struct, frozen=True):
    """An event ready for use. `seats` finds a seat's pair by its id, `seat_at` a seat by its ordinal."""

    organization_id: UUID
    document: EventDocument
    version: str
    zones: tuple[Zone, ...]
    zone_index: Mapping[str, int]
    seats: Mapping[str, Pair]
    seat_at: Mapping[int, SeatDocument]
    map: bytes
    zone_specs: bytes
    opens_ms: int
    closes_ms: int

    @property
    def event_id(self) -> UUID:
        return self.document.event_id

    @property
    def ttl_ms(self) -> int:
        return self.document.policy.default_hold_ttl_minutes * 60_000

    def rules(self, *, max_backlog: int, retention_ms: int) -> bytes:
        """The limits that hold scripts are given; see lua/include/hold_rules.lua."""
        policy = self.document.policy
        return pack_rules(
            (
                self.document.state.selling,
                self.opens_ms,
                self.closes_ms,
                max_backlog,
                policy.max_seats_per_booking,
                policy.max_holds_per_user or 0,
                policy.max_holds_per_ip or 0,
                policy.rate_limit_seats,
                policy.rate_limit_seconds * 1000,
                # A hold must stay on record for as long as it counts in the window.
                max(retention_ms, policy.rate_limit_seconds * 1000),
            )
        )


def compile_event(organization_id: UUID, document: EventDocument) -> CompiledEvent:
    """Lay an event's zones and seats out for the scripts. Raises LayoutError where the document contradicts itself."""
    pieces: list[bytes] = []
    zones: list[Zone] = []
    seats: dict[str, Pair] = {}
    seat_at: dict[int, SeatDocument] = {}
    at = 0
    for index, zone in enumerate(document.zones):
        _check_zone(index, zone)
        first = at
        for _, row in groupby(zone.seats, key=lambda seat: seat.row):
            if at > first:
                pieces.append(SEPARATOR)
                at += 1
            for seat in row:
                if seat.seat_id in seats:
                    raise LayoutError(f"zones[{index}]: seat {seat.seat_id!r} appears twice")
                pieces.append(BLOCKED if seat.seat_id in document.blocked_seat_ids else FREE)
                seats[seat.seat_id], seat_at[at] = Pair(index, at), seat
                at += 1
        zones.append(Zone(index, zone, first, at - first))
        if at > first:
            pieces.append(SEPARATOR)
            at += 1
    if unknown := document.blocked_seat_ids - seats.keys():
        raise LayoutError(f"blocked_seat_ids: there is no seat {min(unknown)!r}")
    if at > MAX_ORDINALS:
        raise LayoutError(f"zones: {at} places in the map, at most {MAX_ORDINALS} are possible")
    zone_index = {zone.document.zone_id: zone.index for zone in zones}
    if len(zone_index) < len(zones):
        raise LayoutError("zones: two zones have the same zone_id")
    return CompiledEvent(
        organization_id=organization_id,
        document=document,
        version=_version(organization_id, document),
        zones=tuple(zones),
        zone_index=zone_index,
        seats=seats,
        seat_at=seat_at,
        map=b"".join(pieces),
        zone_specs=pack_zone_specs((zone.document.capacity, zone.first, zone.length) for zone in zones),
        opens_ms=_milliseconds(document.sale_start),
        closes_ms=_milliseconds(document.sale_end),
    )


def _check_zone(index: int, zone: ZoneDocument) -> None:
    where = f"zones[{index}] ({zone.name})"
    if zone.zone_type.seated and not zone.seats:
        raise LayoutError(f"{where}: a {zone.zone_type} zone needs seats")
    if not zone.zone_type.seated and zone.seats:
        raise LayoutError(f"{where}: a {zone.zone_type} zone has places, not seats")
    if zone.seats and zone.capacity > len(zone.seats):
        raise LayoutError(f"{where}: capacity {zone.capacity} is more than its {len(zone.seats)} seats")
    rows = [row for row, _ in groupby(zone.seats, key=lambda seat: seat.row)]
    if len(rows) != len(set(rows)):
        raise LayoutError(f"{where}: the seats of a row must follow each other")


def _version(organization_id: UUID, document: EventDocument) -> str:
    """A digest of the event: two processes that compile the same one agree on it, and no two events share one."""
    canonical = msgspec.json.encode(document, order="deterministic")
    return blake2b(organization_id.bytes + canonical, digest_size=12).hexdigest()


def _milliseconds(moment: datetime | None) -> int:
    if moment is None:
        return 0
    if moment.tzinfo is None:
        raise LayoutError(f"{moment.isoformat()} has no time zone")
    return int(moment.timestamp() * 1000)
