"""Layouts that events share, and how an event is made from one.

A layout is versioned, and a version never changes. An event that uses one names the version and says what it wants
otherwise: blocked seats, zones left out, other rules for a zone, references to prices. The result is an event document
as any other, so everything behind the catalogue knows only those.
"""

from datetime import date, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.engine.access import AccessMode
from holdfast.engine.layout import EventDocument, EventState, Name, Positive, SeatGroupDocument, ZoneDocument, ZoneType
from holdfast.engine.layout_checks import LayoutError, check_groups, check_zones
from holdfast.engine.policy import PolicyChanges, SeatingPolicy, given

# As large as the number that Postgres keeps.
Version = Annotated[int, Meta(ge=1, le=2_147_483_647)]


class LayoutDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A venue's seats and zones. `total_capacity` is there to be checked."""

    venue_id: UUID
    name: Name
    zones: Annotated[tuple[ZoneDocument, ...], Meta(min_length=1, max_length=1000)]
    seat_groups: tuple[SeatGroupDocument, ...] = ()
    description: Annotated[str, Meta(max_length=2000)] = ""
    total_capacity: Positive | None = None

    @property
    def capacity(self) -> int:
        return sum(zone.capacity for zone in self.zones)


class ZoneOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an event wants otherwise in a zone."""

    zone_type: ZoneType | UnsetType = UNSET
    capacity: Positive | UnsetType = UNSET
    access_mode: AccessMode | UnsetType = UNSET
    membership_tier: Name | UnsetType | None = UNSET
    allowed_roles: frozenset[Name] | UnsetType = UNSET
    whitelist: frozenset[UUID] | UnsetType = UNSET


class PricingZone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pricing_rule_id: Name


class LayoutOverrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an event differs from its layout, by zone and seat ids."""

    blocked_seat_ids: frozenset[str] = frozenset()
    disabled_zones: frozenset[str] = frozenset()
    zone_overrides: dict[str, ZoneOverride] = {}
    pricing_zones: dict[str, PricingZone] = {}


class LayoutReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layout_id: UUID
    version: Version


class EventPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event on a stored layout, under its organisation's policy."""

    event_id: UUID
    name: Name
    layout: LayoutReference
    state: EventState = EventState.DRAFT
    sale_start: datetime | None = None
    sale_end: datetime | None = None
    days: tuple[date, ...] = ()
    overrides: LayoutOverrides = LayoutOverrides()
    seating_overrides: PolicyChanges = PolicyChanges()


class _Kind(msgspec.Struct, frozen=True):
    """What tells a plan from an event with a layout of its own."""

    layout: msgspec.Raw | UnsetType = UNSET


_read_kind = msgspec.json.Decoder(_Kind).decode
_read_plan = msgspec.json.Decoder(EventPlan).decode
_read_document = msgspec.json.Decoder(EventDocument).decode


def read_event(content: bytes) -> EventDocument | EventPlan:
    """An event as JSON: a plan if it names a `layout`, else a document. Raises what msgspec raises."""
    return _read_document(content) if _read_kind(content).layout is UNSET else _read_plan(content)


def check_layout(layout: LayoutDocument) -> None:
    """Raise LayoutError at the first place where a layout contradicts itself."""
    check_zones(layout.zones)
    check_groups(layout.zones, layout.seat_groups)
    if layout.total_capacity not in (None, layout.capacity):
        raise LayoutError(f"total_capacity: {layout.total_capacity} is not the {layout.capacity} of all zones")


def resolve(plan: EventPlan, layout: LayoutDocument, policy: SeatingPolicy) -> EventDocument:
    """The event that a plan makes of its layout and its organisation's policy.

    Raises LayoutError or PolicyError with the place in the plan. What the result as a whole contradicts is found
    when it is compiled.
    """
    overrides = plan.overrides
    known = {zone.zone_id for zone in layout.zones}
    for name, mentioned in (
        ("disabled_zones", overrides.disabled_zones),
        ("zone_overrides", overrides.zone_overrides),
        ("pricing_zones", overrides.pricing_zones),
    ):
        if unknown := set(mentioned) - known:
            raise LayoutError(f"overrides.{name}: the layout has no zone {min(unknown)!r}")
    zones = tuple(_zone(zone, overrides) for zone in layout.zones if zone.zone_id not in overrides.disabled_zones)
    if not zones:
        raise LayoutError("overrides.disabled_zones: at least one zone has to be left")
    left = {seat.seat_id for zone in zones for seat in zone.seats}
    if missing := overrides.blocked_seat_ids - left:
        raise LayoutError(f"overrides.blocked_seat_ids: there is no seat {min(missing)!r} in an enabled zone")
    return EventDocument(
        event_id=plan.event_id,
        name=plan.name,
        zones=zones,
        state=plan.state,
        sale_start=plan.sale_start,
        sale_end=plan.sale_end,
        days=plan.days,
        blocked_seat_ids=overrides.blocked_seat_ids,
        seat_groups=tuple(group for group in layout.seat_groups if set(group.seat_ids) <= left),
        policy=policy.for_event(plan.seating_overrides),
    )


def _zone(zone: ZoneDocument, overrides: LayoutOverrides) -> ZoneDocument:
    """A zone with its overrides. One that becomes general admission loses its seats and keeps its capacity."""
    changes = given(overrides.zone_overrides.get(zone.zone_id, ZoneOverride()))
    if zone.zone_id in overrides.pricing_zones:
        changes["pricing_rule_id"] = overrides.pricing_zones[zone.zone_id].pricing_rule_id
    if "zone_type" in changes and not changes["zone_type"].seated:
        changes["seats"] = ()
    return msgspec.structs.replace(zone, **changes)
