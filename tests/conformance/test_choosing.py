"""Choosing seats, on every backend: together, nobody left alone, and groups split as the policy says."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from conformance.halls import FRONT_ENDS, OpenHall, held, hold, seats, somebody, unchanged

from holdfast.engine.layout import SeatCategory
from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from support.drawn import drawn_event

STRICT = Policy(rate_limit_seats=0, orphan_avoidance_strict=True)
LENIENT = Policy(rate_limit_seats=0)
TOGETHER = Policy(rate_limit_seats=0, group_adjacency_strict=True)
SAME_ROW = Policy(rate_limit_seats=0, max_group_split=0)


@pytest.mark.parametrize(
    ("drawings", "count", "policy", "chosen"),
    [
        # The worked example of seats 6 and 7: 3 and 4 leave nobody alone, so they come first.
        ([".h..h...h."], 2, STRICT, [(0, 2), (0, 3)]),
        ([".hhhh...h."], 2, LENIENT, [(0, 5), (0, 6)]),
        ([".hhhh...hh"], 2, TOGETHER, [(0, 5), (0, 6)]),
        # Held seats in between: best effort gives two apart, a strict group gets none.
        ([".h.h."], 2, LENIENT, [(0, 0), (0, 2)]),
        ([".h.h."], 2, TOGETHER, None),
        # A row more than nine tenths sold excuses the seat that is left alone.
        (["h" * 28 + ".."], 1, STRICT, [(0, 28)]),
        (["h" * 18 + ".."], 1, STRICT, None),
        # A party of five: four together and one behind.
        (["hh....hh|hhh.hhhh"], 5, LENIENT, [(0, 2), (0, 3), (0, 4), (0, 5), (0, 12)]),
        (["hh....hh|hhh.hhhh"], 5, SAME_ROW, None),
        (["hh....hh|h|h|hhh.hhhh"], 5, LENIENT, None),
        # Zones in order of preference; nobody is left alone while a later zone has a better choice.
        (["...", "...."], 2, LENIENT, [(1, 4), (1, 5)]),
        (["...", "h"], 2, LENIENT, [(0, 0), (0, 1)]),
        (["h", "h..h"], 2, LENIENT, [(1, 3), (1, 4)]),
    ],
)
async def test_seats_are_chosen_by_the_rules(
    open_hall: OpenHall,
    drawings: Sequence[str],
    count: int,
    policy: Policy,
    chosen: list[tuple[int, int]] | None,
) -> None:
    async with open_hall(drawn_event(drawings, policy)) as hall:
        reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=range(len(drawings)), count=count)

        assert (reply.status, list(reply.seats)) == (
            (Status.NO_AVAILABLE_SEATS, []) if chosen is None else (Status.DONE, chosen)
        )


@pytest.mark.parametrize(
    ("drawings", "categories", "count", "policy", "chosen"),
    [
        # Of the categories that are wanted the best seats together.
        (["i..rr..i|rrrr"], "r", 2, LENIENT, [(0, 3), (0, 4)]),
        (["i..rr..i|rrrr"], "r", 3, LENIENT, [(0, 9), (0, 10), (0, 11)]),
        (["i..rr..i|rrrr"], "ri", 1, LENIENT, [(0, 0)]),
        (["i..i"], ".i", 3, LENIENT, [(0, 0), (0, 1), (0, 2)]),
        # A seat that is not wanted is a neighbour all the same: nobody is left alone next to those that are given.
        (["r..|...."], ".", 2, LENIENT, [(0, 4), (0, 5)]),
        (["i...i"], ".", 3, STRICT, None),
        (["i...i"], ".", 3, LENIENT, [(0, 1), (0, 2), (0, 3)]),
        (["i...i"], ".", 1, LENIENT, [(0, 2)]),
        (["h" * 28 + "r."], "r", 1, STRICT, [(0, 28)]),
        # A group is split between rows, within its categories.
        (["rr..|..rr"], "r", 4, LENIENT, [(0, 0), (0, 1), (0, 7), (0, 8)]),
        (["rr..|..rr"], "r", 4, TOGETHER, None),
        (["i..i"], "i", 2, STRICT, [(0, 0), (0, 3)]),
        (["i.i"], "i", 2, STRICT, None),
        # Zones in order of preference, those without such seats among them.
        (["....", "rr.."], "r", 2, LENIENT, [(1, 5), (1, 6)]),
        (["....", "..r", "rr"], "r", 2, LENIENT, [(2, 9), (2, 10)]),
    ],
)
async def test_seats_of_some_categories_are_chosen_by_the_same_rules(  # noqa: PLR0917 - one per column.
    open_hall: OpenHall,
    drawings: Sequence[str],
    categories: str,
    count: int,
    policy: Policy,
    chosen: list[tuple[int, int]] | None,
) -> None:
    wanted = {each for each in SeatCategory if each.letter.decode() in categories}
    async with open_hall(drawn_event(drawings, policy)) as hall:
        reply = await hall.backend.allocate_seats(
            hall.event, somebody(), zones=range(len(drawings)), count=count, categories=wanted
        )

        assert (reply.status, list(reply.seats)) == (
            (Status.NO_AVAILABLE_SEATS, []) if chosen is None else (Status.DONE, chosen)
        )


async def test_no_zone_has_such_seats(open_hall: OpenHall) -> None:
    async with open_hall(drawn_event(["i..", "rr"], LENIENT)) as hall, unchanged(hall):
        wish = {"zones": [0], "count": 1, "categories": {SeatCategory.RESTRICTED_VIEW}}

        assert (await hall.backend.allocate_seats(hall.event, somebody(), **wish)).status is Status.SEAT_NOT_FOUND


async def test_seats_of_a_category_that_overdue_holds_have(open_hall: OpenHall) -> None:
    async with open_hall(drawn_event(["i..i", "rr"], LENIENT)) as hall:
        first = list(hall.event.seats)
        await hall.lapse(await held(hall, first[0], first[1]), await held(hall, *first[4:]))
        await held(hall, first[3])

        aisle = await hall.backend.allocate_seats(
            hall.event, somebody(), zones=[0, 1], count=1, categories={SeatCategory.AISLE}
        )

        assert (aisle.status, list(aisle.seats)) == (Status.DONE, seats(hall, first[0]))


async def test_callers_who_want_one_category_at_once_share_its_seats_and_no_others(open_hall: OpenHall) -> None:
    async with open_hall(drawn_event(["i........i|" * 19 + "i........i"], LENIENT)) as hall:
        replies = await asyncio.gather(
            *(
                hall.front_ends[caller % FRONT_ENDS].allocate_seats(
                    hall.event, somebody(), zones=[0], count=1, categories={SeatCategory.AISLE}
                )
                for caller in range(60)
            )
        )

        given = [seat.value for reply in replies for seat in reply.seats]
        assert sorted(given) == [each for each in hall.event.seat_at if hall.event.kinds[each] == ord("i")]
        assert [reply.status for reply in replies].count(Status.NO_AVAILABLE_SEATS) == 20


@pytest.mark.parametrize(
    ("drawing", "wanted", "left_alone"),
    [
        # The worked example: booking the second and the fourth of five leaves the others alone.
        (".....", [2, 4], [1, 3, 5]),
        (".....", [1, 2], []),
        (".....", [2, 3], [1]),
        ("....h", [1, 2], []),
        ("..|...", [1, 3], [2]),
        # What was alone before is nobody's doing: only single seats are left in the row.
        (".h.h.", [3], []),
        (".h...h.", [3, 4, 5], []),
        # More than nine tenths of the row are sold.
        ("h" * 28 + "..", [29], []),
        ("h" * 18 + "..", [19], [20]),
    ],
)
async def test_named_seats_that_leave_an_orphan(
    open_hall: OpenHall, drawing: str, wanted: list[int], left_alone: list[int]
) -> None:
    async with open_hall(drawn_event([drawing], STRICT)) as hall:
        named = list(hall.event.seats.values())
        request = {"seats": [named[number - 1] for number in wanted]}
        if left_alone:
            async with unchanged(hall):
                reply = await hall.backend.hold_seats(hall.event, somebody(), **request)
            assert reply.status is Status.LEAVES_ORPHAN
            assert list(reply.seats) == [named[number - 1] for number in left_alone]
        lenient = msgspec.structs.replace(hall.event.document, policy=LENIENT)
        if left_alone:
            _, hall.event = await hall.backend.set_event_state(hall.event, lenient)

        assert (await hall.backend.hold_seats(hall.event, somebody(), **request)).status is Status.DONE


async def test_a_hold_past_its_time_counts_as_free_for_what_is_left_alone(open_hall: OpenHall) -> None:
    async with open_hall(drawn_event(["....", "..."], STRICT)) as hall:
        first = list(hall.event.seats)
        await held(hall, *first[2:4])
        await hall.lapse(await held(hall, *first[:2]))

        async with unchanged(hall):
            reply = await hold(hall, first[1])

        assert (reply.status, list(reply.seats)) == (Status.LEAVES_ORPHAN, seats(hall, first[0]))
        assert (await hold(hall, *first[:2])).status is Status.DONE


async def test_the_nearest_block_to_what_is_taken_is_offered_or_held(open_hall: OpenHall) -> None:
    async with open_hall(drawn_event(["....|....", "..."], STRICT)) as hall:
        row = list(hall.event.seats)[4:8]
        await held(hall, *row[2:])
        near = hall.event.seats[row[2]].value
        wish = {"zones": [0, 1], "count": 2, "near": near}

        async with unchanged(hall):
            named = await hall.backend.offer_seats(hall.event, somebody(), **wish, take=False)
        taken = await hall.backend.offer_seats(hall.event, somebody(), **wish, take=True)

        assert (named.status, named.hold_id, list(named.seats)) == (Status.OFFERED, None, seats(hall, *row[:2]))
        assert (taken.status, taken.seats) == (Status.DONE, named.seats)


async def test_no_offer_of_seats_that_are_not_together(open_hall: OpenHall) -> None:
    async with open_hall(drawn_event([".h.h.", "h"], LENIENT)) as hall, unchanged(hall):
        reply = await hall.backend.offer_seats(hall.event, somebody(), zones=[0, 1], count=2, near=0, take=True)

        assert reply.status is Status.NO_AVAILABLE_SEATS
