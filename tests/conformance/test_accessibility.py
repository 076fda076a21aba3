"""Wheelchair seats and their companions, on both backends: the rules of the seating specification, one by one."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from uuid import UUID, uuid4

import msgspec
import pytest
from conformance.halls import FRONT_ENDS, Hall, OpenHall, held, hold, letters, reading, seats, somebody, unchanged

from holdfast.engine.backend import AdminReply, HoldReply
from holdfast.engine.layout import Policy
from holdfast.engine.status import Status
from support.engine import UNLIMITED, accessible_document

ORDINARY = [f"A-{number}" for number in range(3, 11)] + [f"B-{number}" for number in range(4, 11)]


@pytest.fixture
async def pairs(open_hall: OpenHall) -> AsyncIterator[Hall]:
    """Two rows of ten, A-1 with the companion A-2, B-1 with the companions B-2 and B-3."""
    async with open_hall(accessible_document()) as opened:
        yield opened


def policy(**changes: object) -> Policy:
    return msgspec.structs.replace(UNLIMITED, **changes)


async def fill(hall: Hall, occupied: int) -> None:
    """Hold ordinary seats until so many seats of the zone are held or sold."""
    zone = (await reading(hall)).zones[0]
    free = [seat for seat in ORDINARY if await letters(hall, seat) == "."]
    if wanted := free[: occupied - zone.held - zone.sold]:
        await held(hall, *wanted)


async def decline(hall: Hall, hold_id: UUID, user: UUID) -> AdminReply:
    return await hall.backend.decline_companions(hall.event, hold_id, user_id=user)


async def accessible(hall: Hall, count: int, user: UUID | None = None) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(user), zones=[0], count=count, accessible=True)


async def release(hall: Hall, *hold_ids: UUID) -> None:
    reply = await hall.backend.release_holds(hall.event, hold_ids, user_id=None, reason="admin_override")
    assert reply.status is Status.DONE


async def sell(hall: Hall, *hold_ids: UUID, sale: str = "sale-1") -> Status:
    return (await hall.backend.confirm_holds(hall.event, hold_ids, sale=sale, user_id=None)).status


async def test_the_map_tells_free_wheelchair_and_companion_seats_apart(pairs: Hall) -> None:
    assert await letters(pairs, "A-1", "A-2", "A-3", "B-1", "B-2", "B-3", "B-4") == "wa.waa."


async def test_holding_a_wheelchair_seat_keeps_its_companions_for_that_buyer(pairs: Hall) -> None:
    buyer = uuid4()
    await held(pairs, "B-1", user=buyer)

    assert await letters(pairs, "B-1", "B-2", "B-3", "A-2") == "hcca"
    async with unchanged(pairs):
        refused = await hold(pairs, "B-3", "B-4")
    assert (refused.status, refused.seats, refused.until_ms) == (
        Status.SEAT_NOT_AVAILABLE,
        tuple(seats(pairs, "B-3")),
        0,
    )
    await held(pairs, "B-2", user=buyer)
    assert await letters(pairs, "B-1", "B-2", "B-3") == "hhc"


async def test_a_kept_seat_counts_as_free(pairs: Hall) -> None:
    before = (await reading(pairs)).zones[0]
    await held(pairs, "B-1")

    after = (await reading(pairs)).zones[0]
    assert after == before._replace(held=1)


async def test_a_companion_seat_is_free_for_anybody_while_its_wheelchair_seat_is(pairs: Hall) -> None:
    assert (await hold(pairs, "A-2")).status is Status.DONE


async def test_both_in_one_request_and_a_wheelchair_seat_whose_companion_is_gone(pairs: Hall) -> None:
    await held(pairs, "A-2")
    assert (await hold(pairs, "A-1")).status is Status.DONE
    assert (await hold(pairs, "B-2", "B-1", "B-3")).status is Status.DONE


async def test_a_wheelchair_seat_alone_is_fine_and_stays_kept_for_after_the_sale(pairs: Hall) -> None:
    buyer = uuid4()
    alone = await held(pairs, "A-1", user=buyer)
    assert await sell(pairs, alone) is Status.DONE

    assert await letters(pairs, "A-1", "A-2") == "sc"
    assert (await hold(pairs, "A-2")).status is Status.SEAT_NOT_AVAILABLE
    assert (await hold(pairs, "A-2", user=buyer)).status is Status.DONE


async def test_companions_are_released_to_all_at_85_percent(pairs: Hall) -> None:
    await held(pairs, "A-1")
    await fill(pairs, 16)
    assert await letters(pairs, "A-2") == "c"
    assert (await hold(pairs, "A-2")).status is Status.SEAT_NOT_AVAILABLE

    await fill(pairs, 16)
    await held(pairs, "B-2")
    assert await letters(pairs, "A-2") == "a"
    assert (await hold(pairs, "A-2")).status is Status.DONE


async def test_the_threshold_is_the_policys_and_counts_what_is_sold(open_hall: OpenHall) -> None:
    async with open_hall(accessible_document(policy=policy(companion_release_occupancy_threshold=10))) as hall:
        wheelchair = await held(hall, "A-1")
        assert (await hold(hall, "A-2")).status is Status.SEAT_NOT_AVAILABLE
        assert await sell(hall, wheelchair, await held(hall, "A-5")) is Status.DONE
        assert (await hold(hall, "A-2")).status is Status.DONE


async def test_a_buyer_who_declines_lets_the_companions_go(pairs: Hall) -> None:
    buyer = uuid4()
    wheelchair = await held(pairs, "B-1", user=buyer)

    declined = await decline(pairs, wheelchair, buyer)
    assert (declined.status, declined.seats) == (Status.DONE, tuple(seats(pairs, "B-1")))
    async with unchanged(pairs):
        again = await decline(pairs, wheelchair, buyer)
    assert (again.status, again.position) == (Status.REPEATED, declined.position)

    assert await letters(pairs, "B-1", "B-2", "B-3") == "haa"
    assert (await hold(pairs, "B-2")).status is Status.DONE
    assert (await hold(pairs, "B-3", user=buyer)).status is Status.DONE


async def test_what_was_declined_stays_so_after_the_sale_and_the_next_buyer_declines_anew(pairs: Hall) -> None:
    buyer = uuid4()
    wheelchair = await held(pairs, "A-1", user=buyer)
    await decline(pairs, wheelchair, buyer)
    await sell(pairs, wheelchair)
    assert await letters(pairs, "A-1", "A-2") == "sa"

    other = await held(pairs, "B-1", user=buyer)
    await decline(pairs, other, buyer)
    await release(pairs, other)
    await held(pairs, "B-1", user=buyer)
    assert await letters(pairs, "B-1", "B-2") == "hc"


async def test_declining_is_for_the_owner_of_a_live_or_sold_hold_with_wheelchair_seats(pairs: Hall) -> None:
    buyer = uuid4()
    ordinary, gone = await held(pairs, "A-5", user=buyer), await held(pairs, "A-1", user=buyer)
    await release(pairs, gone)
    late = await held(pairs, "A-1", user=buyer)

    async with unchanged(pairs):
        assert (await decline(pairs, uuid4(), buyer)).status is Status.HOLD_NOT_FOUND
        assert (await decline(pairs, late, uuid4())).status is Status.NOT_HOLD_OWNER
        assert (await decline(pairs, ordinary, buyer)).status is Status.SEAT_NOT_FOUND
        assert (await decline(pairs, gone, buyer)).status is Status.HOLD_RELEASED
    await pairs.lapse(late)
    async with unchanged(pairs):
        assert (await decline(pairs, late, buyer)).status is Status.HOLD_EXPIRED


async def test_releasing_the_wheelchair_seat_frees_its_companion(pairs: Hall) -> None:
    wheelchair = await held(pairs, "A-1")
    await release(pairs, wheelchair)

    assert await letters(pairs, "A-1", "A-2") == "wa"
    assert (await hold(pairs, "A-2")).status is Status.DONE


@pytest.mark.parametrize("reaped", [True, False])
async def test_a_wheelchair_seat_past_its_time_keeps_nothing(pairs: Hall, reaped: bool) -> None:
    wheelchair = await held(pairs, "A-1")
    await pairs.lapse(wheelchair)
    if reaped:
        event = pairs.event
        await pairs.backend.expire_holds(event.organization_id, event.event_id, limit=10)

    assert await letters(pairs, "A-2") == "a"
    assert (await hold(pairs, "A-2")).status is Status.DONE


async def test_a_companion_seat_that_comes_free_is_kept_again(pairs: Hall) -> None:
    buyer = uuid4()
    await held(pairs, "A-1", user=buyer)
    companion = await held(pairs, "A-2", user=buyer)
    await pairs.lapse(companion)

    async with unchanged(pairs):
        assert (await hold(pairs, "A-2")).status is Status.SEAT_NOT_AVAILABLE
    await release_expired(pairs)
    assert await letters(pairs, "A-2") == "c"
    assert (await hold(pairs, "A-2", user=buyer)).status is Status.DONE


async def release_expired(hall: Hall) -> None:
    await hall.backend.expire_holds(hall.event.organization_id, hall.event.event_id, limit=10)


async def test_a_payment_that_lands_late_takes_no_seat_that_is_kept_for_another(pairs: Hall) -> None:
    late = await held(pairs, "A-2")
    await pairs.lapse(late)
    await release_expired(pairs)
    await held(pairs, "A-1")

    async with unchanged(pairs):
        assert await sell(pairs, late) is Status.SEATS_LOST


async def test_a_payment_that_lands_late_takes_wheelchair_and_companion_again(pairs: Hall) -> None:
    buyer, other = uuid4(), uuid4()
    late = await held(pairs, "B-1", "B-2", user=buyer)
    await decline(pairs, late, buyer)
    await pairs.lapse(late)
    await release_expired(pairs)
    await release(pairs, await held(pairs, "B-1", user=other))

    assert await sell(pairs, late) is Status.DONE
    assert await letters(pairs, "B-1", "B-2", "B-3") == "ssc"
    assert (await hold(pairs, "B-3", user=other)).status is Status.SEAT_NOT_AVAILABLE
    assert (await hold(pairs, "B-3", user=buyer)).status is Status.DONE


async def test_max_wheelchair_seats_per_booking(open_hall: OpenHall) -> None:
    async with open_hall(accessible_document()) as hall:
        buyer = uuid4()
        both = await hold(hall, "A-1", "B-1", user=buyer)
        assert (both.status, both.seats) == (Status.WHEELCHAIR_LIMIT_EXCEEDED, tuple(seats(hall, "A-1", "B-1")))
        first = await held(hall, "A-1", user=buyer)
        async with unchanged(hall):
            second = await hold(hall, "B-1", "B-4", user=buyer)
            assert (await accessible(hall, 1, buyer)).status is Status.WHEELCHAIR_LIMIT_EXCEEDED
        assert (second.status, second.seats) == (Status.WHEELCHAIR_LIMIT_EXCEEDED, tuple(seats(hall, "B-1")))
        assert (await hold(hall, "A-1", user=buyer)).status is Status.ALREADY_HELD
        await sell(hall, first)
        assert (await hold(hall, "B-1", user=buyer)).status is Status.DONE


async def test_two_at_a_time_where_the_policy_says_two(open_hall: OpenHall) -> None:
    async with open_hall(accessible_document(policy=policy(max_wheelchair_seats_per_booking=2))) as hall:
        assert (await hold(hall, "A-1", "B-1")).status is Status.DONE


async def test_without_enforcement_nothing_is_kept_and_nothing_limited(open_hall: OpenHall) -> None:
    async with open_hall(accessible_document(policy=policy(enforce_accessibility_rules=False))) as hall:
        await held(hall, "A-1", "B-1")
        assert await letters(hall, "A-2", "B-2") == "aa"
        assert (await hold(hall, "A-2")).status is Status.DONE


async def test_best_available_never_gives_wheelchair_or_companion_seats_to_everybody(pairs: Hall) -> None:
    found = await pairs.backend.allocate_seats(pairs.event, somebody(), zones=[0], count=2)
    assert found.seats == tuple(seats(pairs, "A-3", "A-4"))
    rest = [await pairs.backend.allocate_seats(pairs.event, somebody(), zones=[0], count=1) for _ in range(14)]

    assert [reply.status for reply in rest] == [Status.DONE] * 13 + [Status.NO_AVAILABLE_SEATS]
    assert await letters(pairs, "A-1", "A-2", "B-1", "B-2", "B-3") == "wawaa"


async def test_best_available_gives_no_wheelchair_seat_of_an_overdue_hold_either(pairs: Hall) -> None:
    await held(pairs, *ORDINARY)
    await pairs.lapse(await held(pairs, "A-1", "A-2"))

    found = await pairs.backend.allocate_seats(pairs.event, somebody(), zones=[0], count=1)
    assert found.status is Status.NO_AVAILABLE_SEATS


async def test_an_accessible_request_gets_a_wheelchair_seat_with_its_companions(pairs: Hall) -> None:
    three = await accessible(pairs, 3)
    assert (three.status, three.seats) == (Status.DONE, tuple(seats(pairs, "B-1", "B-2", "B-3")))
    assert (await accessible(pairs, 3)).status is Status.NO_AVAILABLE_SEATS
    two = await accessible(pairs, 2)
    assert (two.status, two.seats) == (Status.DONE, tuple(seats(pairs, "A-1", "A-2")))
    assert (await accessible(pairs, 1)).status is Status.NO_AVAILABLE_SEATS


async def test_an_accessible_request_takes_what_overdue_holds_have(pairs: Hall) -> None:
    await held(pairs, "A-1")
    await pairs.lapse(await held(pairs, "B-1"), await held(pairs, "A-9"))

    found = await accessible(pairs, 3)
    assert (found.status, found.seats) == (Status.DONE, tuple(seats(pairs, "B-1", "B-2", "B-3")))
    assert await letters(pairs, "A-9") == "."


async def test_seats_that_come_free_have_the_letter_of_their_kind(pairs: Hall) -> None:
    blocked = seats(pairs, "A-1", "A-2", "A-3")
    await pairs.backend.block_seats(pairs.event, seats=blocked)
    assert await letters(pairs, "A-1", "A-2", "A-3") == "bbb"
    await pairs.backend.unblock_seats(pairs.event, seats=blocked)
    assert await letters(pairs, "A-1", "A-2", "A-3") == "wa."


async def test_an_organiser_may_block_a_kept_seat(pairs: Hall) -> None:
    await held(pairs, "A-1")
    reply = await pairs.backend.block_seats(pairs.event, seats=seats(pairs, "A-2"))
    assert reply.status is Status.DONE
    assert await letters(pairs, "A-2") == "b"


async def test_two_buyers_race_for_a_companion_seat_and_only_the_right_one_gets_it(pairs: Hall) -> None:
    buyer = uuid4()
    await held(pairs, "A-1", user=buyer)
    users = [buyer if number == 50 else uuid4() for number in range(100)]
    replies = await asyncio.gather(
        *(
            pairs.front_ends[number % FRONT_ENDS].hold_seats(pairs.event, somebody(user), seats=seats(pairs, "A-2"))
            for number, user in enumerate(users)
        )
    )

    assert replies[50].status is Status.DONE
    others = {reply.status for number, reply in enumerate(replies) if number != 50}
    assert others <= {Status.SEAT_NOT_AVAILABLE, Status.SEAT_HELD_BY_ANOTHER_USER}


async def test_wheelchair_and_companion_seat_wanted_by_different_people_at_once(pairs: Hall) -> None:
    """Whoever is first wins: the companion seat before its wheelchair seat is taken, or its buyer's right to it."""
    wheelchair, companion = await asyncio.gather(
        pairs.front_ends[0].hold_seats(pairs.event, somebody(), seats=seats(pairs, "A-1")),
        pairs.front_ends[1].hold_seats(pairs.event, somebody(), seats=seats(pairs, "A-2")),
    )

    assert wheelchair.status is Status.DONE
    assert companion.status in (Status.DONE, Status.SEAT_NOT_AVAILABLE)
    assert await letters(pairs, "A-2") == ("h" if companion.status is Status.DONE else "c")


async def test_companions_never_leak_to_others_before_the_threshold(pairs: Hall) -> None:
    """Whatever happens to the seats: nobody but its buyer gets a companion seat while the zone is below 85 percent."""
    choice = Random(11)  # noqa: S311 - the same choices in every run
    users = [uuid4() for _ in range(4)]
    companions = {"A-2": "A-1", "B-2": "B-1", "B-3": "B-1"}
    taker: dict[str, UUID] = {}
    holds: dict[UUID, tuple[str, ...]] = {}
    refusals = 0
    for step in range(250):
        user = choice.choice(users)
        wish = choice.choice(("A-1", "B-1", *companions, *companions, *ORDINARY))
        shown, zone = await letters(pairs, wish), (await reading(pairs)).zones[0]
        reply = await hold(pairs, wish, user=user)
        if wish in companions and shown == "c" and user != taker[companions[wish]]:
            assert 100 * (zone.held + zone.sold) < 85 * zone.capacity
            assert reply.status is Status.SEAT_NOT_AVAILABLE
            refusals += 1
        elif shown in ("c", "a"):
            assert reply.status is Status.DONE
        if reply.status is Status.DONE:
            assert reply.hold_id is not None
            holds[reply.hold_id] = (wish,)
            if wish in ("A-1", "B-1"):
                taker[wish] = user
        if holds and step % 3 == 0:
            ending = choice.choice(list(holds))
            await release(pairs, ending)
            del holds[ending]
    assert refusals > 5
