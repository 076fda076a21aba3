"""Every switch of the seating policy that decides a booking does so, on every backend. What only a document is checked
for is in tests/unit/test_layout.py; what the front end decides, in tests/http."""

from typing import Any

import pytest
from conformance.halls import Hall, OpenHall, held, hold, reading, somebody, unchanged

from holdfast.engine.layout import EventDocument, ZoneDocument, ZoneType
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from support.drawn import drawn_event
from support.engine import document, seats

FREE = {"rate_limit_seats": 0}


def festival(**policy: Any) -> EventDocument:
    """The festival of the specification: a numbered hall, a floor, a pit and a lounge."""
    usual = document(policy=Policy(**{**FREE, "max_seats_per_booking": 100, **policy}))
    zones = (
        ZoneDocument("orchestra", ZoneType.RESERVED_SEATING, "Orchestra", 300, seats(15, 20, "O")),
        ZoneDocument("floor", ZoneType.GA_SEATED, "Floor", 400),
        ZoneDocument("pit", ZoneType.GA_STANDING, "Pit", 300),
        ZoneDocument("lounge", ZoneType.VIP_RESERVED, "Lounge", 50, seats(5, 10, "L")),
    )
    return EventDocument(event_id=usual.event_id, name="Festival", zones=zones, state=usual.state, policy=usual.policy)


async def units(hall: Hall, zone: int, count: int) -> Status:
    reply = await hall.backend.hold_seats(hall.event, somebody(), quantities=[(zone, count)])
    return reply.status


@pytest.mark.parametrize(
    "switch", ["allow_reserved_seating", "allow_ga_seating", "allow_hybrid_ga_reserved", "allow_vip_zones"]
)
async def test_kinds_of_zones_that_are_not_allowed_never_open(open_hall: OpenHall, switch: str) -> None:
    with pytest.raises(LayoutError, match=switch):
        async with open_hall(festival(**{switch: False})):
            pass
    async with open_hall(festival(**{switch: True})) as hall:
        assert (await reading(hall)).status is Status.DONE


async def test_max_seats_per_booking(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=Policy(**FREE, max_seats_per_booking=3))) as hall:
        async with unchanged(hall):
            assert (await hold(hall, "A-1", "A-2", places=2)).status is Status.TOO_MANY_SEATS
            best = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=4)
            assert best.status is Status.TOO_MANY_SEATS
        assert (await hold(hall, "A-1", "A-2", places=1)).status is Status.DONE


async def test_default_hold_ttl_minutes(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=Policy(**FREE, default_hold_ttl_minutes=3))) as hall:
        reply = await hold(hall, "A-1")

        assert reply.until_ms - reply.now_ms == 180_000


async def test_max_holds_per_user_and_per_ip(open_hall: OpenHall) -> None:
    policy = Policy(**FREE, max_holds_per_user=2, max_holds_per_ip=3)
    async with open_hall(document(policy=policy)) as hall:
        user = somebody().user_id
        await held(hall, "A-1", "A-2", user=user, address="home")
        async with unchanged(hall):
            assert (await hold(hall, "A-3", user=user)).status is Status.USER_LIMIT_EXCEEDED
            assert (await hold(hall, "A-3", "A-4", address="home")).status is Status.ADDRESS_LIMIT_EXCEEDED
        assert (await hold(hall, "A-3", address="home")).status is Status.DONE


async def test_group_adjacency_strict_and_max_group_split(open_hall: OpenHall) -> None:
    for changes, status in (
        ({"group_adjacency_strict": True}, Status.NO_AVAILABLE_SEATS),
        ({"max_group_split": 1}, Status.NO_AVAILABLE_SEATS),
        ({"max_group_split": 2}, Status.DONE),
    ):
        async with open_hall(drawn_event(["..|hh|.."], Policy(**FREE, **changes))) as hall:
            reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=4)

            assert reply.status is status


async def test_a_festival_has_1050_places_in_four_independent_pools(open_hall: OpenHall) -> None:
    """Inventory is tracked per zone; total occupancy is the sum across zones."""
    async with open_hall(festival()) as hall:
        assert [zone.capacity for zone in (await reading(hall)).zones] == [300, 400, 300, 50]
        assert sum(zone.free for zone in (await reading(hall)).zones) == 1_050

        # The pit is filled to the last place, and has none left,
        assert {await units(hall, 2, 100) for _ in range(3)} == {Status.DONE}
        async with unchanged(hall):
            assert await units(hall, 2, 1) is Status.BLOCK_AT_CAPACITY
        # which is no concern of the floor, the hall and the lounge: one booking has some of each.
        two = [hall.event.seats["OA-5"], hall.event.seats["OA-6"]]
        mixed = await hall.backend.hold_seats(hall.event, somebody(), seats=two, quantities=[(1, 1)])
        assert mixed.status is Status.DONE

        zones = (await reading(hall)).zones
        assert [zone.free for zone in zones] == [298, 399, 0, 50]
        assert sum(zone.held + zone.sold for zone in zones) == 303


async def test_ga_capacity_of_a_zone_never_exceeds_what_it_is(open_hall: OpenHall) -> None:
    async with open_hall(festival()) as hall:
        outcomes = [await units(hall, 1, 90) for _ in range(5)]

        assert outcomes == [Status.DONE] * 4 + [Status.BLOCK_AT_CAPACITY]
        assert await units(hall, 1, 40) is Status.DONE
        assert (await reading(hall)).zones[1].free == 0
