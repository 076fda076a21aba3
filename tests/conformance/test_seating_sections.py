"""The sections of the seating specification that no other file is about, on both backends: seats and layouts, kinds of
zones, several days, capacities and the states of a seat. docs/seating.md says where the others are tried."""

from datetime import date
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from conformance.halls import Hall, OpenHall, change, held, hold, letters, reading, seats, somebody, unchanged

from holdfast.engine.layout import EventDocument, EventState, SeatDocument, ZoneDocument, ZoneType
from holdfast.engine.plan import EventPlan, LayoutDocument, LayoutOverrides, LayoutReference, ZoneOverride, resolve
from holdfast.engine.policy import Policy, SeatingPolicy
from holdfast.engine.status import Status
from support.engine import UNLIMITED, accessible, document
from support.engine import seats as rows

FESTIVAL_DAYS = (date(2027, 7, 2), date(2027, 7, 3), date(2027, 7, 4))


def event(*zones: ZoneDocument, **changes: Any) -> EventDocument:
    return msgspec.structs.replace(document(), zones=zones, **changes)


def hall_of_950() -> LayoutDocument:
    """The mixed capacities of the specification: sections A and B, a pit and a lounge."""
    return LayoutDocument(
        uuid4(),
        "Main Hall 2025",
        (
            ZoneDocument("section-a", ZoneType.RESERVED_SEATING, "Section A", 200, rows(10, 20, "A")),
            ZoneDocument("section-b", ZoneType.GA_SEATED, "Section B", 300),
            ZoneDocument("pit", ZoneType.GA_STANDING, "Pit", 400),
            ZoneDocument("lounge", ZoneType.VIP_RESERVED, "VIP Lounge", 50, rows(5, 10, "V")),
        ),
    )


def planned(layout: LayoutDocument, **overrides: Any) -> EventDocument:
    plan = EventPlan(
        uuid4(), "Gala", LayoutReference(uuid4(), 1), EventState.LIVE, overrides=LayoutOverrides(**overrides)
    )
    return resolve(plan, layout, SeatingPolicy(UNLIMITED))


async def places(hall: Hall, zone: str, quantity: int) -> Status:
    pair = (hall.event.zone_index[zone], quantity)
    return (await hall.backend.hold_seats(hall.event, somebody(), quantities=[pair])).status


async def sell(hall: Hall, *hold_ids: UUID) -> Status:
    return (await hall.backend.confirm_holds(hall.event, hold_ids, sale="sale-1", user_id=None)).status


# Seat identity, layouts and the overlays of events.


async def test_a_seat_keeps_its_id_whatever_becomes_of_the_event(hall: Hall) -> None:
    before = hall.event.seats["B-3"]
    await held(hall, "B-3")
    await change(hall, name="Another night", state=EventState.PUBLISHED)

    assert hall.event.seats["B-3"] == before
    assert await letters(hall, "B-3") == "h"


async def test_seats_that_the_event_blocks_are_not_to_be_had(open_hall: OpenHall) -> None:
    async with open_hall(planned(hall_of_950(), blocked_seat_ids=frozenset({"AA-1"}))) as hall:
        async with unchanged(hall):
            refused = await hold(hall, "AA-1")
            with_another = await hold(hall, "AA-2", "AA-1")
        assert (refused.status, with_another.status) == (Status.SEAT_NOT_AVAILABLE, Status.SEAT_NOT_AVAILABLE)
        best = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)
        assert best.seats == tuple(seats(hall, "AA-2", "AA-3"))


async def test_a_zone_that_the_event_disables_is_not_there(open_hall: OpenHall) -> None:
    async with open_hall(planned(hall_of_950(), disabled_zones=frozenset({"lounge"}))) as hall:
        assert "VA-1" not in hall.event.seats
        assert sum(zone.capacity for zone in (await reading(hall)).zones) == 900


async def test_a_zone_becomes_standing_only_for_a_festival(open_hall: OpenHall) -> None:
    standing = {"section-a": ZoneOverride(zone_type=ZoneType.GA_STANDING)}
    async with open_hall(planned(hall_of_950(), zone_overrides=standing)) as hall:
        assert {await places(hall, "section-a", 100) for _ in range(2)} == {Status.DONE}
        assert await places(hall, "section-a", 1) is Status.BLOCK_AT_CAPACITY


# Kinds of zones.


@pytest.mark.parametrize("kind", [ZoneType.RESERVED_SEATING, ZoneType.VIP_RESERVED])
async def test_a_reserved_zone_gives_seats_and_no_places(open_hall: OpenHall, kind: ZoneType) -> None:
    async with open_hall(event(ZoneDocument("zone", kind, "Zone", 10, rows(1, 10)))) as hall:
        async with unchanged(hall):
            assert await places(hall, "zone", 1) is Status.SEAT_NOT_FOUND
        assert (await hold(hall, "A-1")).status is Status.DONE
        assert (await hold(hall, "A-1")).status is Status.SEAT_HELD_BY_ANOTHER_USER


@pytest.mark.parametrize("kind", [ZoneType.GA_SEATED, ZoneType.GA_STANDING, ZoneType.VIP_STANDING])
async def test_a_zone_of_places_counts_them_and_has_no_seats(open_hall: OpenHall, kind: ZoneType) -> None:
    async with open_hall(event(ZoneDocument("zone", kind, "Zone", 10))) as hall:
        async with unchanged(hall):
            seat = await hall.backend.hold_seats(hall.event, somebody(), seats=[(0, 0)])
            best = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=1)
        assert (seat.status, best.status) == (Status.SEAT_NOT_FOUND, Status.SEAT_NOT_FOUND)
        assert await places(hall, "zone", 7) is Status.DONE
        assert await places(hall, "zone", 4) is Status.BLOCK_AT_CAPACITY
        assert await places(hall, "zone", 3) is Status.DONE
        assert (await reading(hall)).map == b""


# Accessibility, where nothing belongs to a wheelchair seat.


async def test_a_wheelchair_seat_without_a_companion_is_booked_alone(open_hall: OpenHall) -> None:
    plain = document(rows=1)
    alone = accessible(plain.zones[0].seats, "A-1")
    doc = msgspec.structs.replace(plain, zones=(msgspec.structs.replace(plain.zones[0], seats=alone), plain.zones[1]))
    async with open_hall(doc) as hall:
        reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=1, accessible=True)

        assert (reply.status, reply.seats) == (Status.DONE, tuple(seats(hall, "A-1")))
        assert reply.hold_id is not None
        assert await sell(hall, reply.hold_id) is Status.DONE


# Several days.


async def test_a_seat_is_the_same_seat_on_all_days(open_hall: OpenHall) -> None:
    """A pass for three days has one seat: held once, sold once, and nobody has it on another day."""
    async with open_hall(document(days=FESTIVAL_DAYS)) as hall:
        friday_to_sunday = await held(hall, "A-5", places=1)
        assert (await hold(hall, "A-5")).status is Status.SEAT_HELD_BY_ANOTHER_USER
        assert await sell(hall, friday_to_sunday) is Status.DONE

        zones = (await reading(hall)).zones
        assert [(zone.sold, zone.free) for zone in zones] == [(1, 29), (1, 49)]
        assert (await hold(hall, "A-5")).status is Status.SEAT_NOT_AVAILABLE


async def test_the_booking_of_the_two_day_festival(open_hall: OpenHall) -> None:
    """Two orchestra seats, one place on the floor, one in the pit: held together, and sold together."""
    zones = (
        ZoneDocument("orchestra", ZoneType.RESERVED_SEATING, "Orchestra", 300, rows(15, 20)),
        ZoneDocument("floor", ZoneType.GA_SEATED, "Floor", 400),
        ZoneDocument("pit", ZoneType.GA_STANDING, "Pit", 300),
        ZoneDocument("lounge", ZoneType.VIP_RESERVED, "VIP Lounge", 50, rows(5, 10, "V")),
    )
    async with open_hall(event(*zones, days=FESTIVAL_DAYS[:2])) as hall:
        booking = await hall.backend.hold_seats(
            hall.event, somebody(), seats=seats(hall, "A-5", "A-6"), quantities=[(1, 1), (2, 1)]
        )
        assert [zone.held for zone in (await reading(hall)).zones] == [2, 1, 1, 0]
        assert booking.hold_id is not None
        assert await sell(hall, booking.hold_id) is Status.DONE

        after = (await reading(hall)).zones
        assert [(zone.held, zone.sold, zone.free) for zone in after] == [
            (0, 2, 298),
            (0, 1, 399),
            (0, 1, 299),
            (0, 0, 50),
        ]
        assert await letters(hall, "A-5", "A-6") == "ss"


# Capacities.


async def test_mixed_capacities_are_950_and_a_full_section_changes_no_other(open_hall: OpenHall) -> None:
    async with open_hall(planned(hall_of_950())) as hall:
        assert [zone.capacity for zone in (await reading(hall)).zones] == [200, 300, 400, 50]
        assert sum(zone.free for zone in (await reading(hall)).zones) == 950
        assert {await places(hall, "section-b", 100) for _ in range(3)} == {Status.DONE}
        everything = list(hall.event.seats)[:200]
        for at in range(0, 200, 100):
            assert await sell(hall, await held(hall, *everything[at : at + 100])) is Status.DONE

        assert await places(hall, "section-b", 1) is Status.BLOCK_AT_CAPACITY
        none = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=1)
        assert none.status is Status.NO_AVAILABLE_SEATS
        assert [zone.free for zone in (await reading(hall)).zones] == [0, 0, 400, 50]
        assert await places(hall, "pit", 100) is Status.DONE
        assert (await hold(hall, "VA-1")).status is Status.DONE
        assert sum(zone.held + zone.sold for zone in (await reading(hall)).zones) == 601


async def test_an_event_without_a_seating_layout_has_places_only(open_hall: OpenHall) -> None:
    async with open_hall(event(ZoneDocument("field", ZoneType.GA_STANDING, "Field", 5))) as hall:
        assert await places(hall, "field", 5) is Status.DONE
        assert [zone.free for zone in (await reading(hall)).zones] == [0]


# The states of a seat.


async def test_available_held_available_held_sold_and_never_back(hall: Hall) -> None:
    assert await letters(hall, "A-1") == "."
    first = await held(hall, "A-1")
    assert await letters(hall, "A-1") == "h"
    await hall.backend.release_holds(hall.event, [first], user_id=None, reason="user_cancelled")
    assert await letters(hall, "A-1") == "."
    second = await held(hall, "A-1")
    assert await sell(hall, second) is Status.DONE
    assert await letters(hall, "A-1") == "s"

    # What is sold stays so, whatever comes afterwards.
    async with unchanged(hall):
        released = await hall.backend.release_holds(hall.event, [second], user_id=None, reason="user_cancelled")
        unblocked = await hall.backend.unblock_seats(hall.event, seats=seats(hall, "A-1"))
    assert released.outcomes == (Status.HOLD_SOLD,)
    # It was not blocked.
    assert unblocked.status is Status.REPEATED
    assert await letters(hall, "A-1") == "s"


async def test_a_hold_that_expires_during_checkout_can_be_made_anew(hall: Hall) -> None:
    user = uuid4()
    late = await held(hall, "A-1", user=user)
    await hall.lapse(late)

    extended = await hall.backend.extend_holds(
        hall.event, [late], user_id=user, key="k", extension_ms=60_000, total_ms=600_000, checkout="checkout-1"
    )
    assert extended.outcomes == (Status.HOLD_EXPIRED,)
    assert (await hold(hall, "A-1", user=user)).status is Status.DONE


async def test_max_group_split_zero_keeps_a_group_in_one_row(open_hall: OpenHall) -> None:
    zone = ZoneDocument("zone", ZoneType.RESERVED_SEATING, "Zone", 4, (*rows(2, 2),))
    for split, status in ((0, Status.NO_AVAILABLE_SEATS), (1, Status.DONE)):
        policy = Policy(rate_limit_seats=0, max_group_split=split)
        async with open_hall(event(zone, policy=policy)) as hall:
            reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=4)

            assert reply.status is status


async def test_a_seat_of_two_rows_is_no_neighbour(open_hall: OpenHall) -> None:
    """Seats next to each other in the list are not together if their rows differ."""
    places = (SeatDocument("A-1", "A", 1), SeatDocument("B-1", "B", 1))
    policy = Policy(rate_limit_seats=0, group_adjacency_strict=True)
    async with open_hall(event(ZoneDocument("z", ZoneType.RESERVED_SEATING, "Z", 2, places), policy=policy)) as hall:
        reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)

        assert reply.status is Status.NO_AVAILABLE_SEATS
