"""Layout documents, and the compiled event that hot paths use.

A compiled event is everything static about an event, in the form the scripts want it: seats by ordinal (their byte
in the map), zones by index, limits as one packed argument. It is identified by its version, a digest of all that,
so that a script can tell in one comparison whether the caller knows the event as it is.
"""

from collections.abc import Container, Iterable, Mapping
from datetime import date, datetime
from enum import StrEnum
from hashlib import blake2b
from itertools import groupby, product
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.access import Access, AccessMode
from holdfast.engine.hold_ids import event_tag
from holdfast.engine.layout_checks import LayoutError, check_document
from holdfast.engine.policy import Policy
from holdfast.engine.records import Pair, pack_accessibility, pack_paired_seats, pack_rules, pack_zone_specs

SEPARATOR = b"|"
FREE = b"."
FREE_WHEELCHAIR = b"w"
FREE_COMPANION = b"a"
BLOCKED = b"b"
MAX_ORDINALS = 1 << 24

Positive = Annotated[int, Meta(ge=1, le=100_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


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
        return _SELLING.get(self, 0)


_SELLING = {EventState.PUBLISHED: 1, EventState.LIVE: 1, EventState.CANCELLED: 2}


class ZoneType(StrEnum):
    RESERVED_SEATING = "reserved_seating"
    GA_SEATED = "ga_seated"
    GA_STANDING = "ga_standing"
    VIP_RESERVED = "vip_reserved"
    VIP_STANDING = "vip_standing"

    @property
    def vip(self) -> bool:
        return self in (ZoneType.VIP_RESERVED, ZoneType.VIP_STANDING)

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

    @property
    def free_letter(self) -> bytes:
        """The byte of such a seat in the map while it is free."""
        return _FREE_LETTERS.get(self, FREE)

    @property
    def letter(self) -> bytes:
        """The byte of such a seat among the kinds of seats."""
        return _LETTERS[self]

    @property
    def accessible(self) -> bool:
        """Whether such seats are only for those who ask for them."""
        return self in _FREE_LETTERS


_FREE_LETTERS = {SeatCategory.WHEELCHAIR: FREE_WHEELCHAIR, SeatCategory.COMPANION: FREE_COMPANION}
_LETTERS = {
    SeatCategory.STANDARD: b".",
    SeatCategory.RESTRICTED_VIEW: b"r",
    SeatCategory.AISLE: b"i",
} | _FREE_LETTERS


class Coordinates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a seat stands on the plan."""

    x: float
    y: float


class SeatDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seat. Within a zone the best row comes first, and seats of a row in the order they stand.

    The companion seats of a wheelchair seat are those it names, and those in a wheelchair pair with it.
    """

    seat_id: Name
    row: Name
    number: Annotated[int, Meta(ge=0, le=100_000)]
    category: SeatCategory = SeatCategory.STANDARD
    coordinates: Coordinates | None = None
    companion_seat_ids: tuple[Name, ...] = ()


class ZoneDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A zone. In a restricted one the people on its list may book whatever the rule says."""

    zone_id: Name
    zone_type: ZoneType
    name: Name
    capacity: Positive
    seats: tuple[SeatDocument, ...] = ()
    access_mode: AccessMode = AccessMode.PUBLIC
    membership_tier: Name | None = None
    allowed_roles: frozenset[Name] = frozenset()
    whitelist: frozenset[UUID] = frozenset()
    pricing_rule_id: Name | None = None

    @property
    def access(self) -> Access:
        return Access(self.access_mode, self.membership_tier or "", self.allowed_roles, self.whitelist)


class GroupType(StrEnum):
    WHEELCHAIR_PAIR = "wheelchair_pair"
    FAMILY_BLOCK = "family_block"
    VIP_TABLE = "vip_table"
    RESERVED_BLOCK = "reserved_block"


class SeatGroupDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seats of one zone that belong together."""

    group_type: GroupType
    seat_ids: Annotated[tuple[Name, ...], Meta(min_length=2, max_length=100)]


class EventDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `event load` reads: an event with its layout. A seat is one seat on all days of an event."""

    event_id: UUID
    name: Name
    zones: Annotated[tuple[ZoneDocument, ...], Meta(min_length=1, max_length=1000)]
    state: EventState = EventState.DRAFT
    sale_start: datetime | None = None
    sale_end: datetime | None = None
    days: tuple[date, ...] = ()
    blocked_seat_ids: frozenset[str] = frozenset()
    seat_groups: tuple[SeatGroupDocument, ...] = ()
    policy: Policy = Policy()


class Zone(msgspec.Struct, frozen=True):
    """A zone as scripts know it: its index, and its stretch of the map (empty for general admission)."""

    index: int
    document: ZoneDocument
    first: int
    length: int
    categories: frozenset[SeatCategory]

    @property
    def last(self) -> int:
        return self.first + self.length - 1


class CompiledEvent(msgspec.Struct, frozen=True):
    """An event ready for use. `seats` finds a seat's pair by its id, `seat_at` a seat by its ordinal.

    `tag` is in the ids of its holds. `kinds` has the category of each seat at its place in the map, if those that are
    for everybody are of several. `paired` has every wheelchair and companion seat by its ordinal, with the seats
    that belong to it: companions to a wheelchair seat, wheelchair seats to a companion.
    """

    organization_id: UUID
    document: EventDocument
    version: str
    zones: tuple[Zone, ...]
    zone_index: Mapping[str, int]
    seats: Mapping[str, Pair]
    seat_at: Mapping[int, SeatDocument]
    map: bytes
    kinds: bytes
    zone_specs: bytes
    opens_ms: int
    closes_ms: int
    tag: bytes
    paired: Mapping[int, tuple[Pair, ...]]

    @property
    def event_id(self) -> UUID:
        return self.document.event_id

    @property
    def ttl_ms(self) -> int:
        return self.document.policy.default_hold_ttl_minutes * 60_000

    def row_around(self, ordinal: int) -> range:
        """The ordinals of the row in which a seat stands."""
        return range(self.map.rfind(SEPARATOR, 0, ordinal) + 1, self.map.find(SEPARATOR, ordinal))

    def narrowed(self, zones: Iterable[int], categories: Container[SeatCategory]) -> frozenset[SeatCategory] | None:
        """The categories to choose seats from, of those that are for everybody: None if that leaves out none in these
        zones."""
        there = frozenset[SeatCategory]().union(*(self.zones[zone].categories for zone in zones))
        wanted = frozenset(each for each in there if each in categories)
        return None if wanted == there else wanted

    @property
    def accessibility(self) -> bytes:
        """What the policy says of wheelchair seats, as `counts` has it; empty for an event without any."""
        policy = self.document.policy
        if not self.paired:
            return b""
        return pack_accessibility(policy.companion_percent, policy.wheelchair_limit, policy.accessibility_audit_enabled)

    @property
    def companions(self) -> dict[int, list[int]]:
        """The wheelchair seats of every companion seat that has any, by their ordinals."""
        return {
            ordinal: [other.value for other in others]
            for ordinal, others in self.paired.items()
            if others and self.seat_at[ordinal].category is SeatCategory.COMPANION
        }

    @property
    def paired_seats(self) -> bytes:
        """The wheelchair and companion seats as open_event takes them."""
        return pack_paired_seats(
            (ordinal, self.seat_at[ordinal].category.free_letter, others) for ordinal, others in self.paired.items()
        )

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
                policy.orphan_avoidance_strict,
                0 if policy.group_adjacency_strict else policy.max_group_split + 1,
                policy.orphan_audit_enabled,
                60 * (policy.min_hold_ttl_minutes or 0),
                policy.adaptive_hold_from_percent,
            )
        )


def compile_event(organization_id: UUID, document: EventDocument) -> CompiledEvent:
    """Lay an event's zones and seats out for the scripts. Raises LayoutError where the document contradicts itself."""
    check_document(document)
    pieces: list[bytes] = []
    kinds: list[bytes] = []
    zones: list[Zone] = []
    seats: dict[str, Pair] = {}
    seat_at: dict[int, SeatDocument] = {}
    at = 0
    for index, zone in enumerate(document.zones):
        first = at
        for _, row in groupby(zone.seats, key=lambda seat: seat.row):
            if at > first:
                pieces.append(SEPARATOR)
                kinds.append(SEPARATOR)
                at += 1
            for seat in row:
                blocked = seat.seat_id in document.blocked_seat_ids
                pieces.append(BLOCKED if blocked else seat.category.free_letter)
                kinds.append(seat.category.letter)
                seats[seat.seat_id], seat_at[at] = Pair(index, at), seat
                at += 1
        categories = frozenset(seat.category for seat in zone.seats if not seat.category.accessible)
        zones.append(Zone(index, zone, first, at - first, categories))
        if at > first:
            pieces.append(SEPARATOR)
            kinds.append(SEPARATOR)
            at += 1
    if at > MAX_ORDINALS:
        raise LayoutError(f"zones: {at} places in the map, at most {MAX_ORDINALS} are possible")
    return CompiledEvent(
        organization_id=organization_id,
        document=document,
        version=_version(organization_id, document),
        zones=tuple(zones),
        zone_index={zone.document.zone_id: zone.index for zone in zones},
        seats=seats,
        seat_at=seat_at,
        map=b"".join(pieces),
        kinds=b"".join(kinds) if len({each for zone in zones for each in zone.categories}) > 1 else b"",
        zone_specs=pack_zone_specs((zone.document.capacity, zone.first, zone.length) for zone in zones),
        opens_ms=_milliseconds(document.sale_start),
        closes_ms=_milliseconds(document.sale_end),
        tag=event_tag(organization_id, document.event_id),
        paired=_pair_seats(document, seats),
    )


def _pair_seats(document: EventDocument, seats: Mapping[str, Pair]) -> dict[int, tuple[Pair, ...]]:
    """Every wheelchair and companion seat with the seats that belong to it, in the order of the map."""
    category = {seat.seat_id: seat.category for zone in document.zones for seat in zone.seats}
    pairs = {(seat.seat_id, each) for zone in document.zones for seat in zone.seats for each in seat.companion_seat_ids}
    for group in document.seat_groups:
        if group.group_type is GroupType.WHEELCHAIR_PAIR:
            wheelchairs = [each for each in group.seat_ids if category[each] is SeatCategory.WHEELCHAIR]
            companions = [each for each in group.seat_ids if category[each] is SeatCategory.COMPANION]
            pairs.update(product(wheelchairs, companions))
    paired: dict[int, set[Pair]] = {
        pair.value: set() for seat_id, pair in seats.items() if category[seat_id] in _FREE_LETTERS
    }
    for wheelchair, companion in pairs:
        paired[seats[wheelchair].value].add(seats[companion])
        paired[seats[companion].value].add(seats[wheelchair])
    return {ordinal: tuple(sorted(others)) for ordinal, others in sorted(paired.items())}


def _version(organization_id: UUID, document: EventDocument) -> str:
    """A digest of the event: two processes that compile the same one agree on it, and no two events share one.

    What event, zones and policy say like their defaults is left out, so that a release which knows of more to say has
    the same version for a document that does not say it. Hence a new member's default must mean what held without it.
    """
    zones = [_said(zone) for zone in document.zones]
    canonical = msgspec.json.encode(
        {**_said(document), "zones": zones, "policy": _said(document.policy)}, order="deterministic"
    )
    return blake2b(organization_id.bytes + canonical, digest_size=12).hexdigest()


def _said(struct: msgspec.Struct) -> dict[str, object]:
    """The members of a struct that are not as they are by default."""
    fields = {field.name: field.default for field in msgspec.structs.fields(struct)}
    return {name: value for name, default in fields.items() if (value := getattr(struct, name)) != default}


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1000)
