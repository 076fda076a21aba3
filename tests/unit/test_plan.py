"""Making an event from a stored layout."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.engine.access import AccessMode
from holdfast.engine.layout import (
    EventDocument,
    GroupType,
    SeatDocument,
    SeatGroupDocument,
    ZoneDocument,
    ZoneType,
    compile_event,
)
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.plan import EventPlan, LayoutDocument, check_layout, resolve
from holdfast.engine.policy import Policy, PolicyError, SeatingPolicy

VENUE, EVENT, LAYOUT, ORGANIZATION = (UUID(int=number) for number in range(1, 5))

SECTION = ZoneDocument(
    "section-a",
    ZoneType.RESERVED_SEATING,
    "Section A",
    4,
    tuple(SeatDocument(f"A-{number}", "A", number) for number in range(1, 5)),
)
PIT = ZoneDocument("pit", ZoneType.GA_STANDING, "Pit", 400)
LOUNGE = ZoneDocument(
    "lounge", ZoneType.VIP_RESERVED, "VIP Lounge", 2, (SeatDocument("V-1", "V", 1), SeatDocument("V-2", "V", 2))
)
HALL = LayoutDocument(
    VENUE,
    "Main Hall 2025",
    (SECTION, PIT, LOUNGE),
    seat_groups=(SeatGroupDocument(GroupType.VIP_TABLE, ("V-1", "V-2")),),
    total_capacity=406,
)
OPEN_POLICY = SeatingPolicy(Policy())


def plan(**members: Any) -> EventPlan:
    document = {"event_id": EVENT, "name": "Gala", "layout": {"layout_id": LAYOUT, "version": 1}, **members}
    return msgspec.json.decode(msgspec.json.encode(document), type=EventPlan)


def resolved(policy: SeatingPolicy = OPEN_POLICY, **members: Any) -> EventDocument:
    document = resolve(plan(**members), HALL, policy)
    compile_event(ORGANIZATION, document)
    return document


def test_an_event_has_the_zones_and_groups_of_its_layout() -> None:
    found = resolved()

    assert found.zones == HALL.zones
    assert found.seat_groups == HALL.seat_groups


def test_a_disabled_zone_is_left_out_with_its_groups() -> None:
    found = resolved(overrides={"disabled_zones": ["lounge"]})

    assert [zone.zone_id for zone in found.zones] == ["section-a", "pit"]
    assert found.seat_groups == ()


def test_blocked_seats_and_prices_are_taken_over() -> None:
    found = resolved(
        overrides={"blocked_seat_ids": ["A-2"], "pricing_zones": {"section-a": {"pricing_rule_id": "rule-1"}}}
    )

    assert found.blocked_seat_ids == {"A-2"}
    assert [zone.pricing_rule_id for zone in found.zones] == ["rule-1", None, None]


def test_a_zone_becomes_for_members_only() -> None:
    special = {"access_mode": "membership_tier", "membership_tier": "special"}

    found = resolved(overrides={"zone_overrides": {"section-a": special}})

    assert (found.zones[0].access_mode, found.zones[0].membership_tier) == (AccessMode.MEMBERSHIP_TIER, "special")


def test_a_zone_becomes_standing_only() -> None:
    found = resolved(overrides={"zone_overrides": {"section-a": {"zone_type": "ga_standing", "capacity": 10}}})

    assert (found.zones[0].zone_type, found.zones[0].capacity, found.zones[0].seats) == ("ga_standing", 10, ())


def test_the_event_has_the_policy_of_its_organisation_with_its_own_changes() -> None:
    found = resolved(SeatingPolicy(Policy(max_seats_per_booking=6)), seating_overrides={"default_hold_ttl_minutes": 5})

    assert found.policy == Policy(max_seats_per_booking=6, default_hold_ttl_minutes=5)


def test_an_override_that_is_not_permitted_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"seating_overrides\.orphan_avoidance_strict"):
        resolved(
            SeatingPolicy(mandatory=frozenset({"orphan_avoidance_strict"})),
            seating_overrides={"orphan_avoidance_strict": False},
        )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"disabled_zones": ["attic"]}, "overrides.disabled_zones: the layout has no zone 'attic'"),
        ({"zone_overrides": {"attic": {}}}, "overrides.zone_overrides: the layout has no zone 'attic'"),
        (
            {"pricing_zones": {"attic": {"pricing_rule_id": "x"}}},
            "overrides.pricing_zones: the layout has no zone 'attic'",
        ),
        ({"disabled_zones": ["section-a", "pit", "lounge"]}, "at least one zone has to be left"),
        ({"blocked_seat_ids": ["Z-1"]}, "overrides.blocked_seat_ids: there is no seat 'Z-1'"),
        (
            {"disabled_zones": ["lounge"], "blocked_seat_ids": ["V-1"]},
            "overrides.blocked_seat_ids: there is no seat 'V-1' in an enabled zone",
        ),
    ],
)
def test_a_plan_that_does_not_fit_its_layout_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        resolved(overrides=overrides)


def test_the_total_capacity_of_a_layout_is_that_of_its_zones() -> None:
    check_layout(HALL)
    with pytest.raises(LayoutError, match="total_capacity: 950 is not the 406 of all zones"):
        check_layout(msgspec.structs.replace(HALL, total_capacity=950))
