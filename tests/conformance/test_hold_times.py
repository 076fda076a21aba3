"""How long holds live, on every backend: as long as the policy says, and less in a zone that fills up."""

import pytest
from conformance.halls import OpenHall, held, hold, reading, somebody

from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from support.engine import document

ADAPTIVE = Policy(
    rate_limit_seats=0,
    max_seats_per_booking=100,
    default_hold_ttl_minutes=10,
    min_hold_ttl_minutes=2,
    adaptive_hold_from_percent=50,
)


@pytest.mark.parametrize(("places", "ttl_s"), [(0, 600), (25, 600), (26, 581), (45, 216), (49, 140)])
async def test_a_hold_is_the_shorter_the_fuller_its_zone(open_hall: OpenHall, places: int, ttl_s: int) -> None:
    """Of a floor of fifty places; what a hold takes itself does not count."""
    async with open_hall(document(policy=ADAPTIVE)) as hall:
        if places:
            await held(hall, places=places)

        reply = await hold(hall, places=1)

        assert (reply.until_ms - reply.now_ms) / 1000 == ttl_s
        assert (await reading(hall)).zones[1].held == places + 1


async def test_the_fullest_zone_of_a_hold_counts_and_others_do_not(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=ADAPTIVE)) as hall:
        await held(hall, places=45)

        seats_only = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)
        both = await hold(hall, "C-1", places=1)

        assert (seats_only.until_ms - seats_only.now_ms, both.until_ms - both.now_ms) == (600_000, 216_000)


async def test_best_available_seats_of_a_full_zone_are_held_for_the_minimum(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=ADAPTIVE)) as hall:
        await held(hall, *list(hall.event.seats)[:28])

        reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)

        # 28 of 30 are more than 93 percent: 13 fifteenths of the way from ten minutes to two.
        assert (reply.status, reply.until_ms - reply.now_ms) == (Status.DONE, (600 - 416) * 1000)


async def test_what_overdue_holds_give_back_no_longer_counts(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=ADAPTIVE)) as hall:
        await hall.lapse(await held(hall, places=50))

        reply = await hold(hall, places=1)

        assert reply.until_ms - reply.now_ms == 600_000


async def test_without_a_minimum_every_hold_is_as_long_as_the_policy_says(open_hall: OpenHall) -> None:
    policy = Policy(rate_limit_seats=0, max_seats_per_booking=100, default_hold_ttl_minutes=7)
    async with open_hall(document(policy=policy)) as hall:
        await held(hall, places=49)

        reply = await hold(hall, places=1)

        assert reply.until_ms - reply.now_ms == 420_000
