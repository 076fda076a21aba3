"""Generated halls and the demo event are documents like any other."""

from uuid import uuid4

import pytest

from holdfast import demo
from holdfast.engine.access import AccessMode
from holdfast.engine.layout import ZoneType, compile_event
from holdfast.generated import SECTION, arena


@pytest.mark.parametrize("seats", [1, 40, 41, SECTION, SECTION + 1, 2_345])
def test_an_arena_has_as_many_seats_as_were_asked_for(seats: int) -> None:
    event = compile_event(uuid4(), arena(seats))

    assert len(event.seats) == sum(zone.document.capacity for zone in event.zones) == seats
    assert len(event.zones) == -(-seats // SECTION)


def test_the_same_size_is_the_same_arena() -> None:
    assert arena(500) == arena(500)
    assert arena(500).event_id != arena(501).event_id


def test_the_demo_is_the_festival_with_seats_floor_pit_and_a_lounge_for_members() -> None:
    zones = demo.festival().zones

    assert [(zone.name, zone.zone_type, zone.capacity) for zone in zones] == [
        ("Orchestra", ZoneType.RESERVED_SEATING, 200),
        ("Floor", ZoneType.GA_SEATED, 300),
        ("Pit", ZoneType.GA_STANDING, 400),
        ("VIP Lounge", ZoneType.VIP_RESERVED, 50),
    ]
    assert [zone.access_mode for zone in zones] == [*[AccessMode.PUBLIC] * 3, AccessMode.MEMBERSHIP_TIER]
    assert zones[3].membership_tier == demo.MEMBERS
