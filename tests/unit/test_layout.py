"""Compiling an event: where each seat lies in the map, what a document may not say, and what makes a version."""

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.engine.access import AccessMode
from holdfast.engine.layout import (
    CompiledEvent,
    Coordinates,
    EventDocument,
    EventState,
    GroupType,
    SeatCategory,
    SeatDocument,
    SeatGroupDocument,
    ZoneDocument,
    ZoneType,
    compile_event,
)
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.policy import Policy
from holdfast.engine.records import Pair, pack_rules, unpack_zone_specs

ORGANIZATION = UUID("11111111-1111-4111-8111-111111111111")
EVENT = UUID("22222222-2222-4222-8222-222222222222")


def row(name: str, count: int, prefix: str = "") -> tuple[SeatDocument, ...]:
    return tuple(SeatDocument(f"{prefix}{name}-{number}", name, number) for number in range(1, count + 1))


def zone(name: str, seats: tuple[SeatDocument, ...], **changes: Any) -> ZoneDocument:
    kind = ZoneType.RESERVED_SEATING if seats else ZoneType.GA_STANDING
    fields: dict[str, Any] = {"zone_type": kind, "capacity": len(seats) or 100}
    return ZoneDocument(zone_id=name, name=name.title(), seats=seats, **fields | changes)


ORCHESTRA = zone("orchestra", row("A", 3) + row("B", 2))
FLOOR = zone("floor", ())
BALCONY = zone("balcony", row("A", 2, "balcony-"), zone_type=ZoneType.VIP_RESERVED)


def compiled(*zones: ZoneDocument, **changes: Any) -> CompiledEvent:
    return compile_event(ORGANIZATION, event(*zones, **changes))


def event(*zones: ZoneDocument, **changes: Any) -> EventDocument:
    return EventDocument(event_id=EVENT, name="Night", zones=zones or (ORCHESTRA, FLOOR, BALCONY), **changes)


def test_rows_and_zones_are_separated_in_the_map() -> None:
    assert compiled().map == b"...|..|..|"


def test_categories_are_beside_the_map_where_there_are_several() -> None:
    names = ("standard", "aisle", "restricted_view", "wheelchair", "companion")
    mixed = tuple(
        msgspec.structs.replace(seat, category=SeatCategory(name))
        for seat, name in zip(row("A", 5), names, strict=True)
    )
    found = compiled(zone("orchestra", mixed + row("B", 2)), FLOOR, BALCONY)

    assert (found.map, found.kinds) == (b"...wa|..|..|", b".irwa|..|..|")
    assert compiled().kinds == b""
    aisle = {SeatCategory.AISLE}
    assert found.narrowed([0, 2], aisle) == aisle
    assert found.narrowed([2], {SeatCategory.STANDARD, SeatCategory.AISLE}) is None
    assert found.narrowed([2], aisle) == frozenset()


def test_seats_are_found_by_id_and_by_ordinal() -> None:
    found = compiled()

    assert found.seats == {
        "A-1": Pair(0, 0),
        "A-2": Pair(0, 1),
        "A-3": Pair(0, 2),
        "B-1": Pair(0, 4),
        "B-2": Pair(0, 5),
        "balcony-A-1": Pair(2, 7),
        "balcony-A-2": Pair(2, 8),
    }
    assert {found.seat_at[pair.value].seat_id: pair for pair in found.seats.values()} == found.seats
    assert len(found.seat_at) == len(found.seats)


def test_zones_have_their_stretch_of_the_map() -> None:
    found = compiled()

    assert [(each.index, each.first, each.length) for each in found.zones] == [(0, 0, 6), (1, 7, 0), (2, 7, 2)]
    assert found.zones[0].last == 5
    assert found.zone_index == {"orchestra": 0, "floor": 1, "balcony": 2}
    assert unpack_zone_specs(found.zone_specs) == ((5, 0, 6), (100, 7, 0), (2, 7, 2))


def test_an_event_of_general_admission_has_no_map() -> None:
    found = compiled(FLOOR, zone("stalls", (), zone_type=ZoneType.GA_SEATED))

    assert found.map == b""
    assert found.seats == {}
    assert [(each.first, each.length) for each in found.zones] == [(0, 0), (0, 0)]


def test_blocked_seats_are_blocked_in_the_map() -> None:
    assert compiled(blocked_seat_ids=frozenset({"A-2", "balcony-A-1"})).map == b".b.|..|b.|"


def test_a_capacity_below_the_number_of_seats_is_fine() -> None:
    found = compiled(zone("orchestra", row("A", 3), capacity=2))

    assert unpack_zone_specs(found.zone_specs) == ((2, 0, 3),)


@pytest.mark.parametrize(
    ("zones", "message"),
    [
        (
            [zone("a", row("A", 2) + row("A", 2))],
            r"zones\[0\]\.seats\[2\]\.seat_id: 'A-1' is also zones\[0\]\.seats\[0\]",
        ),
        (
            [zone("a", row("A", 2)), zone("b", row("A", 1))],
            r"zones\[1\]\.seats\[0\]\.seat_id: 'A-1' is also zones\[0\]\.seats\[0\]",
        ),
        ([zone("a", row("A", 2), capacity=3)], r"zones\[0\]\.capacity: 3 is more than its 2 seats"),
        ([zone("a", row("A", 2), zone_type=ZoneType.GA_SEATED)], r"a ga_seated zone has places, not seats"),
        ([zone("a", row("A", 2), zone_type=ZoneType.VIP_STANDING)], r"a vip_standing zone has places, not seats"),
        ([zone("a", (), zone_type=ZoneType.RESERVED_SEATING)], r"a reserved_seating zone needs seats"),
        ([zone("a", (), zone_type=ZoneType.VIP_RESERVED)], r"a vip_reserved zone needs seats"),
        (
            [zone("a", row("A", 1) + row("B", 1) + row("A", 2)[1:])],
            r"zones\[0\]\.seats: the seats of a row must follow each other",
        ),
        (
            [zone("a", (SeatDocument("x", "A", 1), SeatDocument("y", "A", 1)))],
            r"zones\[0\]\.seats\[1\]\.number: 1 is also zones\[0\]\.seats\[0\]",
        ),
        (
            [zone("a", tuple(SeatDocument(name, name, 1, coordinates=Coordinates(1, 2)) for name in "xy"))],
            r"zones\[0\]\.seats\[1\]\.coordinates: zones\[0\]\.seats\[0\] stands at the same position",
        ),
        (
            [zone("a", (SeatDocument("x", "A", 1, SeatCategory.WHEELCHAIR, companion_seat_ids=("z",)),))],
            r"zones\[0\]\.seats\[0\]\.companion_seat_ids: there is no other seat 'z' in this zone",
        ),
        (
            [zone("a", (SeatDocument("x", "A", 1, companion_seat_ids=("y",)), SeatDocument("y", "A", 2)))],
            r"zones\[0\]\.seats\[0\]\.companion_seat_ids: only a wheelchair seat has companions",
        ),
        (
            [zone("a", (SeatDocument("x", "B", 1, SeatCategory.WHEELCHAIR, None, ("A-2",)), *row("A", 2)))],
            r"zones\[0\]\.seats\[0\]\.companion_seat_ids: the category of 'A-2' is standard, not companion",
        ),
        ([zone("a", (), access_mode=AccessMode.MEMBERSHIP_TIER)], r"zones\[0\]\.membership_tier: .* of which tier"),
        ([zone("a", (), access_mode=AccessMode.ROLE_BASED)], r"zones\[0\]\.allowed_roles: .* at least one"),
        ([FLOOR, FLOOR], r"zones\[1\]\.zone_id: 'floor' is also zones\[0\]"),
        (
            [
                ZoneDocument(f"floor-{number}", ZoneType.GA_STANDING, "Floor", capacity=100_000_000)
                for number in range(22)
            ],
            r"zones: 2200000000 places in all, at most 2147483647 are possible",
        ),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(zones: list[ZoneDocument], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        compiled(*zones)


@pytest.mark.parametrize(
    ("seat_ids", "message"),
    [
        (("A-1", "Z-9"), r"seat_groups\[0\]\.seat_ids: there is no seat 'Z-9'"),
        (("A-1", "A-1"), r"seat_groups\[0\]\.seat_ids: a seat appears twice"),
        (("A-1", "balcony-A-1"), r"seat_groups\[0\]\.seat_ids: the seats are in several zones"),
    ],
)
def test_a_group_that_is_none_is_refused(seat_ids: tuple[str, ...], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        compiled(seat_groups=(SeatGroupDocument(GroupType.FAMILY_BLOCK, seat_ids),))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(allow_vip_zones=False), r"zones\[2\]\.zone_type: .*allow_vip_zones"),
        (Policy(allow_reserved_seating=False), r"zones\[0\]\.zone_type: .*allow_reserved_seating"),
        (Policy(allow_ga_seating=False), r"zones\[1\]\.zone_type: .*allow_ga_seating"),
        (Policy(allow_hybrid_ga_reserved=False), r"zones: .*allow_hybrid_ga_reserved"),
    ],
)
def test_a_zone_that_the_policy_does_not_allow_is_refused(policy: Policy, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        compiled(policy=policy)


@pytest.mark.parametrize("days", [[date(2026, 7, 2), date(2026, 7, 1)], [date(2026, 7, 1)] * 2])
def test_days_come_once_and_in_order(days: list[date]) -> None:
    with pytest.raises(LayoutError, match="days: each day once, the first one first"):
        compiled(days=tuple(days))


def test_an_unknown_blocked_seat_is_refused() -> None:
    with pytest.raises(LayoutError, match="blocked_seat_ids: there is no seat 'Z-9'"):
        compiled(blocked_seat_ids=frozenset({"A-1", "Z-9"}))


@pytest.mark.parametrize("field", ["sale_start", "sale_end"])
def test_a_moment_without_a_time_zone_is_refused(field: str) -> None:
    with pytest.raises(LayoutError, match="2026-11-18T20:00:00 has no time zone"):
        compiled(**{field: datetime(2026, 11, 18, 20)})  # noqa: DTZ001 - the point of the test.


@pytest.mark.parametrize("year", [1, 1969, 5000, 9999])
def test_a_moment_that_scripts_cannot_count_is_refused(year: int) -> None:
    with pytest.raises(LayoutError, match=r"sale_end: .* is not between 1970 and 5000"):
        compiled(sale_end=datetime(year, 12, 31, tzinfo=timezone(timedelta(hours=-14))))


def test_the_sale_window_is_in_milliseconds_since_1970() -> None:
    found = compiled(
        sale_start=datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))) + timedelta(milliseconds=1500),
        sale_end=datetime(2026, 11, 18, 20, tzinfo=UTC),
    )

    assert found.opens_ms == 1500
    assert found.closes_ms == 1_795_032_000_000


def test_an_event_without_a_window_always_sells() -> None:
    assert (compiled().opens_ms, compiled().closes_ms) == (0, 0)


@pytest.mark.parametrize(
    ("state", "code"),
    [("draft", 0), ("published", 1), ("live", 1), ("closed", 0), ("cancelled", 2), ("archived", 0)],
)
def test_scripts_know_a_state_by_a_code(state: str, code: int) -> None:
    rules = compiled(state=EventState(state)).rules(max_backlog=0, retention_ms=0)

    assert rules[0] == EventState(state).selling == code


def test_the_rules_are_the_limits_of_the_policy() -> None:
    policy = Policy(
        max_seats_per_booking=6, max_holds_per_user=7, max_holds_per_ip=8, rate_limit_seats=9, rate_limit_seconds=10
    )
    found = compiled(policy=policy, state=EventState.LIVE)

    assert found.rules(max_backlog=4, retention_ms=50_000) == pack_rules(
        (1, 0, 0, 4, 6, 7, 8, 9, 10_000, 50_000, 0, 3, 0, 0, 50)
    )


def test_the_rules_say_how_seats_are_chosen() -> None:
    strict = compiled(policy=Policy(orphan_avoidance_strict=True, max_group_split=0))
    together = compiled(policy=Policy(group_adjacency_strict=True, max_group_split=5))

    noted = compiled(policy=Policy(orphan_audit_enabled=True))

    assert strict.rules(max_backlog=0, retention_ms=0)[43:46] == b"\x01\x01\x00"
    assert together.rules(max_backlog=0, retention_ms=0)[43:46] == b"\x00\x00\x00"
    assert noted.rules(max_backlog=0, retention_ms=0)[43:46] == b"\x00\x03\x01"


def test_the_rules_say_how_short_a_hold_may_be() -> None:
    adaptive = compiled(policy=Policy(min_hold_ttl_minutes=3, adaptive_hold_from_percent=70))

    assert adaptive.rules(max_backlog=0, retention_ms=0)[-5:] == b"\x00\x00\x00\xb4\x46"


def test_a_hold_stays_on_record_for_as_long_as_it_counts_in_the_window() -> None:
    found = compiled(policy=Policy(rate_limit_seconds=86_400), state=EventState.LIVE)

    assert found.rules(max_backlog=0, retention_ms=1) == found.rules(max_backlog=0, retention_ms=86_400_000)


def test_no_limit_is_zero() -> None:
    found = compiled(policy=Policy(rate_limit_seats=0), state=EventState.LIVE)

    assert found.rules(max_backlog=0, retention_ms=0) == pack_rules(
        (1, 0, 0, 0, 10, 0, 0, 0, 300_000, 300_000, 0, 3, 0, 0, 50)
    )


def test_a_hold_lives_as_long_as_the_policy_says() -> None:
    assert compiled(policy=Policy(default_hold_ttl_minutes=3)).ttl_ms == 180_000
    assert compiled().ttl_ms == 600_000


def test_two_processes_agree_on_the_version() -> None:
    """A set has another order in another process; the digest must not."""
    blocked = frozenset({"A-1", "A-2", "A-3", "B-1", "B-2"})
    document = event(blocked_seat_ids=blocked)
    program = (
        "import sys, uuid, msgspec.json; from holdfast.engine.layout import *;"
        "document = msgspec.json.decode(sys.stdin.read(), type=EventDocument);"
        "print(compile_event(uuid.UUID(sys.argv[1]), document).version)"
    )
    versions = {
        subprocess.run(
            [sys.executable, "-P", "-c", program, str(ORGANIZATION)],
            input=msgspec.json.encode(document),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }

    assert versions == {compile_event(ORGANIZATION, document).version.encode()}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Other night"},
        {"event_id": ORGANIZATION},
        {"state": EventState.LIVE},
        {"sale_start": datetime(2026, 11, 18, tzinfo=UTC)},
        {"sale_end": datetime(2026, 11, 18, tzinfo=UTC)},
        {"blocked_seat_ids": frozenset({"A-1"})},
        {"policy": Policy(max_holds_per_user=1)},
        {"policy": Policy(default_hold_ttl_minutes=11)},
        {"zones": (ORCHESTRA, FLOOR)},
        {"zones": (FLOOR, ORCHESTRA, BALCONY)},
        {"zones": (zone("orchestra", row("A", 3) + row("B", 2), capacity=4), FLOOR, BALCONY)},
        {"zones": (zone("orchestra", row("A", 3) + row("C", 2)), FLOOR, BALCONY)},
        {"zones": (ORCHESTRA, zone("floor", (), zone_type=ZoneType.GA_SEATED), BALCONY)},
        {
            "zones": (
                zone("orchestra", (msgspec.structs.replace(row("A", 1)[0], category=SeatCategory.AISLE),)),
                FLOOR,
                BALCONY,
            )
        },
    ],
    ids="-".join,
)
def test_any_other_content_is_another_version(changes: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(event(), **changes)

    assert compile_event(ORGANIZATION, changed).version != compiled().version


def test_members_that_say_nothing_new_do_not_change_the_version() -> None:
    """What a later release adds, with a default, to event, zones or policy is no change of the documents there are."""
    policy = msgspec.defstruct("Policy", [("fanfare", bool, False)], bases=(Policy,), frozen=True)
    a_zone = msgspec.defstruct("ZoneDocument", [("carpet", str, "red")], bases=(ZoneDocument,), frozen=True)
    an_event = msgspec.defstruct("EventDocument", [("encore", int, 0)], bases=(EventDocument,), frozen=True)
    before = event(policy=Policy(max_holds_per_user=3))

    def later(**said: Any) -> EventDocument:
        zones = tuple(a_zone(**msgspec.structs.asdict(zone)) for zone in before.zones)
        members = msgspec.structs.asdict(before) | {"zones": zones}
        members["policy"] = policy(**msgspec.structs.asdict(before.policy), **said)
        document: EventDocument = an_event(**members)
        return document

    version = compile_event(ORGANIZATION, before).version
    assert compile_event(ORGANIZATION, later()).version == version
    assert compile_event(ORGANIZATION, later(fanfare=True)).version != version


def test_another_organisation_is_another_version() -> None:
    assert compile_event(EVENT, event()).version != compiled().version


def test_a_version_can_be_a_word_of_a_log_entry() -> None:
    assert compiled().version.isalnum()
    assert len(compiled().version) <= 64
