"""What an organisation, or an event, allows: kinds of zones, how seats are chosen, limits and times.

An event has one policy of its own, complete. Where the organisation has stored a seating policy the event's is made
from that: the organisation's values, changed by what the event asks to have otherwise, unless it is mandatory.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.engine.records import ZoneCounts

Minutes = Annotated[int, Meta(ge=1, le=1440)]
Percent = Annotated[int, Meta(ge=0, le=100)]


class PolicyError(ValueError):
    """A change of a policy that is not permitted; the text names the field."""


class AckRule(StrEnum):
    """When a hold is acknowledged: at the commit in Postgres, there unless the request prefers Redis, or as soon as
    Redis has decided."""

    POSTGRES = "postgres"
    ON_REQUEST = "on_request"
    REDIS = "redis"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of an event. None and 0 as a limit mean that there is none; without `ack` the deployment's holds."""

    allow_reserved_seating: bool = True
    allow_ga_seating: bool = True
    allow_hybrid_ga_reserved: bool = True
    allow_vip_zones: bool = True

    enforce_accessibility_rules: bool = True
    companion_release_occupancy_threshold: Percent = 85
    max_wheelchair_seats_per_booking: Annotated[int, Meta(ge=0, le=100)] = 1
    accessibility_audit_enabled: bool = True

    orphan_avoidance_strict: bool = False
    orphan_audit_enabled: bool = False
    group_adjacency_strict: bool = False
    max_group_split: Annotated[int, Meta(ge=0, le=50)] = 2
    prefer_clustering_over_selection: bool = False

    default_hold_ttl_minutes: Minutes = 10
    min_hold_ttl_minutes: Minutes | None = None
    adaptive_hold_from_percent: Percent = 50
    checkout_extension_minutes: Minutes = 5
    max_hold_total_minutes: Minutes = 20

    max_seats_per_booking: Annotated[int, Meta(ge=1, le=100)] = 10
    max_holds_per_user: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    max_holds_per_ip: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    rate_limit_seats: Annotated[int, Meta(ge=0, le=10_000)] = 10
    rate_limit_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300

    ack: AckRule | None = None

    def hold_ttl_ms(self, ttl_ms: int, zones: Iterable[ZoneCounts]) -> int:
        """How long a hold in these zones lives that would live so long in empty ones.

        It becomes shorter evenly, from `adaptive_hold_from_percent` held and sold on, down to `min_hold_ttl_minutes`
        in a zone that is full; the fullest zone counts. lua/include/shorten_ttl.lua does the same sum.
        """
        if self.min_hold_ttl_minutes is None:
            return ttl_ms
        spare_s = max(0, ttl_ms // 1000 - 60 * self.min_hold_ttl_minutes)
        start = self.adaptive_hold_from_percent
        cuts_s = [0]
        for zone in zones:
            over, whole = 100 * (zone.held + zone.sold) - start * zone.capacity, (100 - start) * zone.capacity
            if over > 0 and whole > 0:
                cuts_s.append(spare_s * min(over, whole) // whole)
        return ttl_ms - 1000 * max(cuts_s)

    @property
    def watches_orphans(self) -> bool:
        """Whether it matters that a selection leaves a seat alone."""
        return self.orphan_avoidance_strict or self.orphan_audit_enabled

    @property
    def companion_percent(self) -> int:
        """How full a zone may be before companion seats are no longer kept; 0 where they never are."""
        return self.companion_release_occupancy_threshold if self.enforce_accessibility_rules else 0

    @property
    def wheelchair_limit(self) -> int:
        """How many wheelchair seats one user may hold at a time; 0 for any number."""
        return self.max_wheelchair_seats_per_booking if self.enforce_accessibility_rules else 0


# What a stored policy says where its owner has said nothing: stricter than an event that has none.
STORED_DEFAULTS = Policy(allow_vip_zones=False, orphan_avoidance_strict=True, orphan_audit_enabled=True)

FIELDS: Mapping[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Policy)}

# The same fields, each of which may be left out.
PolicyChanges: Any = msgspec.defstruct(
    "PolicyChanges",
    [(name, kind | UnsetType, UNSET) for name, kind in FIELDS.items()],
    frozen=True,
    forbid_unknown_fields=True,
)


class SeatingPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an organisation stores: its values, and the names of those that no event may have otherwise."""

    values: Policy = STORED_DEFAULTS
    mandatory: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := self.mandatory - FIELDS.keys():
            raise PolicyError(f"mandatory: there is no rule {min(unknown)!r}")

    def for_event(self, changes: Any) -> Policy:
        """The policy of an event that asks for these changes. Raises PolicyError for one that is mandatory."""
        wanted = given(changes)
        for name in sorted(wanted.keys() & self.mandatory):
            if wanted[name] != getattr(self.values, name):
                raise PolicyError(f"seating_overrides.{name}: the organisation does not let events change this")
        return msgspec.structs.replace(self.values, **wanted)


def given(changes: Any) -> dict[str, Any]:
    """The fields of PolicyChanges that were not left out."""
    return {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
