"""Many callers at once, over several front ends: nobody gets what another one has, on either backend."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from uuid import UUID, uuid4

import msgspec
import pytest
from conformance.halls import FRONT_ENDS, Hall, OpenHall, held, letters, reading, seats, somebody

from holdfast.engine.backend import HoldReply
from holdfast.engine.errors import Overloaded
from holdfast.engine.layout import Policy
from holdfast.engine.status import Status
from support.engine import UNLIMITED, document

CALLERS = 1000


def granted(replies: Sequence[HoldReply]) -> list[HoldReply]:
    return [reply for reply in replies if reply.status is Status.DONE]


async def test_a_thousand_callers_on_one_seat_have_one_winner(hall: Hall) -> None:
    replies = await asyncio.gather(
        *(
            hall.front_ends[caller % FRONT_ENDS].hold_seats(hall.event, somebody(), seats=seats(hall, "A-1"))
            for caller in range(CALLERS)
        )
    )

    assert Counter(reply.status for reply in replies) == {
        Status.DONE: 1,
        Status.SEAT_HELD_BY_ANOTHER_USER: CALLERS - 1,
    }
    assert [zone.held for zone in (await reading(hall)).zones] == [1, 0]


async def test_four_together_for_two_hundred_callers_fill_the_zone_and_never_overlap(open_hall: OpenHall) -> None:
    async with open_hall(document(rows=20, per_row=20)) as hall:
        replies = await asyncio.gather(
            *(
                hall.front_ends[caller % FRONT_ENDS].allocate_seats(hall.event, somebody(), zones=[0], count=4)
                for caller in range(200)
            )
        )

        assert Counter(reply.status for reply in replies) == {Status.DONE: 100, Status.NO_AVAILABLE_SEATS: 100}
        taken = [seat for reply in granted(replies) for seat in reply.seats]
        assert len(taken) == len(set(taken)) == 400
        for reply in granted(replies):
            assert len({hall.event.seat_at[seat.value].row for seat in reply.seats}) == 1
            assert all(right.value == left.value + 1 for left, right in pairwise(reply.seats))


@pytest.mark.parametrize("strict", [False, True])
async def test_two_thousand_groups_at_once_fill_a_zone_and_leave_few_seats_alone(
    open_hall: OpenHall, strict: bool
) -> None:
    """Groups of one to six come, two thousand at a time, until nobody gets a seat any more."""
    policy = msgspec.structs.replace(UNLIMITED, orphan_avoidance_strict=strict)
    choice = Random(6)  # noqa: S311 - the same groups in every run
    async with open_hall(document(rows=200, per_row=50, policy=policy)) as hall:
        replies: list[HoldReply] = []
        wave: list[HoldReply] = []
        while not wave or granted(wave):
            wave = await asyncio.gather(*(in_time(hall, number, choice.randint(1, 6)) for number in range(2000)))
            replies += wave
            places = (await reading(hall)).map
            assert len(re.findall(rb"(?<!\.)\.(?!\.)", places)) < 0.05 * len(hall.event.seats)

        assert {reply.status for reply in replies} == {Status.DONE, Status.NO_AVAILABLE_SEATS}
        taken = [seat for reply in granted(replies) for seat in reply.seats]
        assert len(taken) == len(set(taken)) <= len(hall.event.seats)
        assert [zone.held for zone in (await reading(hall)).zones] == [len(taken), 0]
        # Nobody was turned away before almost everything was sold.
        turned_away_ms = min(reply.now_ms for reply in replies if reply.status is not Status.DONE)
        held_before = [seat for reply in granted(replies) if reply.now_ms <= turned_away_ms for seat in reply.seats]
        assert len(held_before) >= 0.99 * len(hall.event.seats)


async def in_time(hall: Hall, number: int, count: int) -> HoldReply:
    """The answer to a group, which asks again under the same hold id where it had to wait too long."""
    holder = somebody()
    while True:
        try:
            return await hall.front_ends[number % FRONT_ENDS].allocate_seats(hall.event, holder, zones=[0], count=count)
        except Overloaded:
            continue


async def test_overlapping_wishes_in_any_order_end_without_a_seat_held_twice(open_hall: OpenHall) -> None:
    async with open_hall(document(rows=4, per_row=10)) as hall:
        choice, everything = Random(7), list(hall.event.seats.values())  # noqa: S311 - the same choices in every run
        wishes = [choice.sample(everything, k=4) for _ in range(300)]

        replies = await asyncio.gather(
            *(
                hall.front_ends[number % FRONT_ENDS].hold_seats(hall.event, somebody(), seats=wish, quantities=[(1, 1)])
                for number, wish in enumerate(wishes)
            )
        )

        taken = [seat for reply in granted(replies) for seat in reply.seats]
        assert len(taken) == len(set(taken)) == (await reading(hall)).zones[0].held > 0
        assert {reply.status for reply in replies} == {Status.DONE, Status.SEAT_HELD_BY_ANOTHER_USER}


async def test_places_are_never_oversold(open_hall: OpenHall) -> None:
    async with open_hall(document(floor=100)) as hall:
        replies = await asyncio.gather(
            *(
                hall.front_ends[caller % FRONT_ENDS].hold_seats(hall.event, somebody(), quantities=[(1, 3)])
                for caller in range(300)
            )
        )

        assert Counter(reply.status for reply in replies) == {Status.DONE: 33, Status.BLOCK_AT_CAPACITY: 267}


async def test_a_user_who_asks_often_at_once_gets_no_more_than_the_limit(open_hall: OpenHall) -> None:
    policy = Policy(max_seats_per_booking=10, max_holds_per_user=5, max_holds_per_ip=7, rate_limit_seats=0)
    async with open_hall(document(rows=10, per_row=10, policy=policy)) as hall:
        users = [uuid4(), uuid4()]
        replies = await asyncio.gather(
            *(
                hall.front_ends[number % FRONT_ENDS].hold_seats(
                    hall.event, somebody(users[number % 2], address="here"), seats=[seat]
                )
                for number, seat in enumerate(hall.event.seats.values())
            )
        )

        # Five for one user, and what the address has left for the other.
        assert len(granted(replies)) == 7
        refused = {reply.status for reply in replies} - {Status.DONE}
        assert refused <= {Status.USER_LIMIT_EXCEEDED, Status.ADDRESS_LIMIT_EXCEEDED}


async def test_the_window_holds_for_requests_at_the_same_time(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=Policy(rate_limit_seats=4, rate_limit_seconds=300))) as hall:
        user = uuid4()
        replies = await asyncio.gather(
            *(
                hall.front_ends[number % FRONT_ENDS].hold_seats(hall.event, somebody(user), seats=[seat])
                for number, seat in enumerate(hall.event.seats.values())
            )
        )

        assert Counter(reply.status for reply in replies) == {Status.DONE: 4, Status.RATE_LIMIT_EXCEEDED: 26}


async def test_repeats_of_one_request_are_one_hold(hall: Hall) -> None:
    holder = somebody(fingerprint="wish-1")
    replies = await asyncio.gather(
        *(
            hall.front_ends[number % FRONT_ENDS].hold_seats(
                hall.event, holder, seats=seats(hall, "A-1", "B-2"), quantities=[(1, 2)]
            )
            for number in range(90)
        )
    )

    assert Counter(reply.status for reply in replies) == {Status.DONE: 1, Status.REPEATED: 89}
    assert len({(reply.hold_id, reply.until_ms, reply.position, reply.seats) for reply in replies}) == 1


async def test_a_hold_is_either_sold_or_released(open_hall: OpenHall) -> None:
    async with open_hall(document(rows=5, per_row=10)) as hall:
        ids = [await held(hall, seat_id) for seat_id in hall.event.seats]
        front_ends = hall.front_ends

        # When for each hold a payment, a cancellation and another buyer arrive together,
        async def fate(number: int, hold_id: UUID) -> tuple[Status, Status]:
            seat = hall.event.seats[list(hall.event.seats)[number]]
            sold, released, _ = await asyncio.gather(
                front_ends[number % 3].confirm_holds(hall.event, [hold_id], sale=f"sale {number}", user_id=None),
                front_ends[(number + 1) % 3].release_holds(
                    hall.event, [hold_id], user_id=None, reason="user_cancelled"
                ),
                front_ends[(number + 2) % 3].hold_seats(hall.event, somebody(), seats=[seat]),
            )
            return sold.status, released.status

        fates = await asyncio.gather(*(fate(number, hold_id) for number, hold_id in enumerate(ids)))

        # then each was sold once or released once, and never both.
        assert set(fates) <= {(Status.DONE, Status.HOLD_SOLD), (Status.HOLD_RELEASED, Status.DONE)}
        sold = sum(first is Status.DONE for first, _ in fates)
        assert (await reading(hall)).zones[0].sold == sold


async def test_late_payments_for_one_seat_sell_it_once(hall: Hall) -> None:
    rivals = []
    for _ in range(5):
        rivals.append(await held(hall, "A-1"))
        await hall.lapse(rivals[-1])

    replies = await asyncio.gather(
        *(
            hall.front_ends[number % FRONT_ENDS].confirm_holds(
                hall.event, [hold_id], sale=f"sale {number}", user_id=None
            )
            for number, hold_id in enumerate(rivals)
        )
    )

    assert Counter(reply.status for reply in replies) == {Status.DONE: 1, Status.SEATS_LOST: 4}
    assert await letters(hall, "A-1") == "s"
