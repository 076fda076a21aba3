"""What both backends answer to somebody who wants seats: every outcome, which comes first, no trace of a refusal."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID, uuid4

import msgspec
import pytest
from conformance.halls import Hall, OpenHall, change, held, hold, letters, seats, somebody, unchanged

from holdfast.engine.audit import Caller
from holdfast.engine.backend import NEVER_MS, HoldReply
from holdfast.engine.layout import EventState, Policy, compile_event
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from support.engine import document

FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
PAST = datetime(2000, 1, 1, tzinfo=UTC)
LIMITS = Policy(
    max_seats_per_booking=6, max_holds_per_user=4, max_holds_per_ip=5, rate_limit_seats=6, rate_limit_seconds=300
)
META = Caller(address="192.0.2.7", user_agent="browser/1.0", request_id="request-1").meta()

Scene = Callable[[Hall], Awaitable[HoldReply]]


async def test_a_hold_of_seats_and_places_is_what_was_asked_for(hall: Hall) -> None:
    # When somebody holds two seats and three places for a minute,
    holder = somebody(ttl_ms=60_000, cart="cart-1", fingerprint="wish-1", address="1234", meta=META)
    reply = await hall.backend.hold_seats(hall.event, holder, seats=seats(hall, "B-2", "A-1"), quantities=[(1, 3)])

    # then the reply says so, and so does whatever is read afterwards.
    assert (reply.status, reply.hold_id, reply.until_ms) == (Status.DONE, holder.hold_id, reply.now_ms + 60_000)
    assert (list(reply.seats), list(reply.quantities)) == (seats(hall, "B-2", "A-1"), [Pair(1, 3)])
    assert await letters(hall, "A-1", "A-2", "B-2") == "h.h"
    ids = (hall.event.organization_id, hall.event.event_id)
    event = await hall.backend.read_event(*ids, want_map=False)
    assert [(zone.held, zone.free) for zone in event.zones] == [(2, 28), (3, 47)]
    assert event.position == reply.position
    found = await hall.backend.read_holds(*ids, user_id=holder.user_id)
    (stored,) = found.holds
    record = stored.record
    assert (stored.hold_id, stored.ends_ms, record.state, record.seq) == (
        holder.hold_id,
        reply.until_ms,
        "h",
        reply.position.seq,
    )
    assert (record.cart, record.fingerprint, record.address) == ("cart-1", "wish-1", "1234")
    assert (record.seats, record.quantities) == (reply.seats, reply.quantities)


async def test_the_best_seats_together_are_found_past_what_is_taken(hall: Hall) -> None:
    await held(hall, "A-2")
    await held(hall, "A-7")

    four = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=4)
    two = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)
    five = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=5)

    assert list(four.seats) == seats(hall, "A-3", "A-4", "A-5", "A-6")
    # Two of would leave the third alone.
    assert list(two.seats) == seats(hall, "B-1", "B-2")
    assert list(five.seats) == seats(hall, "B-3", "B-4", "B-5", "B-6", "B-7")


async def test_the_same_request_again_answers_with_the_first_result(hall: Hall) -> None:
    holder = somebody(fingerprint="wish-1")
    wish = seats(hall, "A-1", "A-2")
    first = await hall.backend.hold_seats(hall.event, holder, seats=wish)

    async with unchanged(hall):
        again = await hall.backend.hold_seats(hall.event, holder, seats=wish)

    assert again.status is Status.REPEATED
    assert (again.hold_id, again.until_ms, again.seats) == (first.hold_id, first.until_ms, first.seats)
    assert again.position == first.position


async def test_seats_a_user_has_already_are_not_held_again(hall: Hall) -> None:
    user = uuid4()
    first = await held(hall, "A-1", "A-2", user=user)

    # The same seats under another id are the hold that is there,
    async with unchanged(hall):
        same = await hold(hall, "A-2", user=user)
    assert (same.status, same.hold_id) == (Status.ALREADY_HELD, first)
    assert list(same.seats) == seats(hall, "A-1", "A-2")

    # and seats beside them are a hold of their own.
    more = await hold(hall, "A-2", "A-3", user=user)
    assert (more.status, list(more.seats)) == (Status.DONE, seats(hall, "A-3"))


async def test_a_hold_past_its_time_makes_way(hall: Hall) -> None:
    old = await held(hall, "A-1", "A-2", places=2)
    await hall.lapse(old)

    # Given nobody has ended it, when another user wants one of its seats,
    reply = await hold(hall, "A-2")

    # then it has expired as a whole.
    assert reply.status is Status.DONE
    assert await letters(hall, "A-1", "A-2") == ".h"
    found = await hall.backend.read_holds(hall.event.organization_id, hall.event.event_id, user_id=None, hold_ids=[old])
    assert [(stored.ends_ms, stored.record.state) for stored in found.holds] == [(0, "x")]


async def test_overdue_holds_make_way_for_places_and_for_the_best_seats(open_hall: OpenHall) -> None:
    async with open_hall(document(rows=1, per_row=4, floor=3)) as hall:
        floor = await held(hall, places=3)
        row = await held(hall, "A-1", "A-2", "A-3", "A-4")
        assert (await hold(hall, places=1)).status is Status.BLOCK_AT_CAPACITY
        assert (
            await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)
        ).status is Status.NO_AVAILABLE_SEATS

        await hall.lapse(floor, row)

        assert (await hold(hall, places=1)).status is Status.DONE
        best = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)
        assert (best.status, list(best.seats)) == (Status.DONE, seats(hall, "A-1", "A-2"))


# Refusals, each a scene that ends with a call which must write nothing.


async def fenced(hall: Hall) -> HoldReply:
    await hall.take_out_of_service()
    return await hold(hall)


async def nothing_asked_for(hall: Hall) -> HoldReply:
    return await hold(hall)


async def a_seat_twice(hall: Hall) -> HoldReply:
    return await hold(hall, "A-1", "A-1")


async def a_time_too_short(hall: Hall) -> HoldReply:
    return await hold(hall, "A-1", ttl_ms=999)


async def a_cart_of_two_lines(hall: Hall) -> HoldReply:
    return await hold(hall, "A-1", cart="a\nb")


async def more_than_a_hundred(hall: Hall) -> HoldReply:
    return await hold(hall, places=101)


async def another_organisations_event(hall: Hall) -> HoldReply:
    stranger = compile_event(uuid4(), hall.event.document)
    return await hall.backend.hold_seats(stranger, somebody(), seats=seats(hall, "A-1"))


async def an_id_used_by_another(hall: Hall) -> HoldReply:
    hold_id = await held(hall, "A-1", fingerprint="wish-1")
    return await hold(hall, "A-2", hold_id=hold_id, fingerprint="wish-1")


async def an_id_used_for_something_else(hall: Hall) -> HoldReply:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user, fingerprint="wish-1")
    return await hold(hall, "A-2", user=user, hold_id=hold_id, fingerprint="wish-2")


async def an_id_that_was_released(hall: Hall) -> HoldReply:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user)
    await hall.backend.release_holds(hall.event, [hold_id], user_id=user, reason="user_cancelled")
    return await hold(hall, "A-1", user=user, hold_id=hold_id)


async def an_id_past_its_time(hall: Hall) -> HoldReply:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user)
    await hall.lapse(hold_id)
    return await hold(hall, "A-1", user=user, hold_id=hold_id)


async def an_id_that_has_expired(hall: Hall) -> HoldReply:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user)
    await hall.lapse(hold_id)
    await hall.backend.expire_holds(hall.event.organization_id, hall.event.event_id, limit=10)
    return await hold(hall, "A-1", user=user, hold_id=hold_id)


async def an_old_configuration(hall: Hall) -> HoldReply:
    old = hall.event
    await change(hall, name="Another night")
    return await hall.backend.hold_seats(old, somebody(), seats=seats(hall, "A-1"))


async def a_cancelled_event(hall: Hall) -> HoldReply:
    await change(hall, state=EventState.CANCELLED)
    return await hold(hall, "A-1")


async def a_draft(hall: Hall) -> HoldReply:
    await change(hall, state=EventState.DRAFT)
    return await hold(hall, "A-1")


async def before_the_sale(hall: Hall) -> HoldReply:
    await change(hall, sale_start=FUTURE)
    return await hold(hall, "A-1")


async def after_the_sale(hall: Hall) -> HoldReply:
    await change(hall, sale_end=PAST)
    return await hold(hall, "A-1")


async def a_seat_between_two_rows(hall: Hall) -> HoldReply:
    (last,) = seats(hall, "A-10")
    return await hall.backend.hold_seats(hall.event, somebody(), seats=[(0, last.value + 1)])


async def a_seat_beyond_the_last(hall: Hall) -> HoldReply:
    return await hall.backend.hold_seats(hall.event, somebody(), seats=[(0, 4_000_000_000)])


async def a_seat_of_the_floor(hall: Hall) -> HoldReply:
    return await hall.backend.hold_seats(hall.event, somebody(), seats=[(1, 0)])


async def places_of_the_stalls(hall: Hall) -> HoldReply:
    return await hall.backend.hold_seats(hall.event, somebody(), quantities=[(0, 1)])


async def the_best_of_the_floor(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[1], count=2)


async def a_blocked_seat(hall: Hall) -> HoldReply:
    await hall.backend.block_seats(hall.event, seats=seats(hall, "A-1"))
    return await hold(hall, "A-1", "A-2")


async def a_sold_seat(hall: Hall) -> HoldReply:
    hold_id = await held(hall, "A-1")
    await hall.backend.confirm_holds(hall.event, [hold_id], sale="sale-1", user_id=None)
    return await hold(hall, "A-1")


async def a_held_seat(hall: Hall) -> HoldReply:
    await held(hall, "A-1")
    return await hold(hall, "A-1", "A-2")


async def more_live_than_a_user_may(hall: Hall) -> HoldReply:
    user = uuid4()
    await held(hall, "A-1", "A-2", "A-3", user=user)
    return await hold(hall, "A-4", "A-5", user=user)


async def more_live_than_an_address_may(hall: Hall) -> HoldReply:
    await held(hall, "A-1", "A-2", "A-3", address="here")
    return await hold(hall, "A-4", "A-5", "A-6", address="here")


async def more_in_the_window_than_a_user_may(hall: Hall) -> HoldReply:
    user = uuid4()
    for seat_id in ("A-1", "A-2"):
        hold_id = await held(hall, seat_id, places=2, user=user)
        await hall.backend.release_holds(hall.event, [hold_id], user_id=user, reason="user_cancelled")
    return await hold(hall, "A-3", user=user)


async def the_best_of_too_many(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=7)


async def the_best_of_none(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=0)


async def the_best_of_no_zone(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[], count=2)


async def the_best_of_a_zone_twice(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[0, 0], count=2)


async def the_best_of_stalls_and_floor(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[0, 1], count=2)


async def more_than_the_zone_has(hall: Hall) -> HoldReply:
    return await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=31)


async def more_places_than_there_are(hall: Hall) -> HoldReply:
    await held(hall, places=45)
    await hall.backend.block_seats(hall.event, quantities=[(1, 3)])
    return await hold(hall, places=3)


PLAIN = {
    fenced: Status.FENCED,
    nothing_asked_for: Status.INVALID_REQUEST,
    a_seat_twice: Status.INVALID_REQUEST,
    a_time_too_short: Status.INVALID_REQUEST,
    a_cart_of_two_lines: Status.INVALID_REQUEST,
    the_best_of_none: Status.INVALID_REQUEST,
    more_than_a_hundred: Status.TOO_MANY_SEATS,
    another_organisations_event: Status.EVENT_NOT_FOUND,
    an_id_used_by_another: Status.HOLD_ID_REUSED,
    an_id_used_for_something_else: Status.HOLD_ID_REUSED,
    an_id_that_was_released: Status.HOLD_RELEASED,
    an_id_past_its_time: Status.HOLD_EXPIRED,
    an_id_that_has_expired: Status.HOLD_EXPIRED,
    an_old_configuration: Status.STALE_CONFIG,
    a_cancelled_event: Status.EVENT_UNAVAILABLE,
    a_draft: Status.EVENT_NOT_AVAILABLE,
    before_the_sale: Status.EVENT_SALES_CLOSED,
    after_the_sale: Status.EVENT_SALES_CLOSED,
    a_seat_between_two_rows: Status.SEAT_NOT_FOUND,
    a_seat_beyond_the_last: Status.SEAT_NOT_FOUND,
    a_seat_of_the_floor: Status.SEAT_NOT_FOUND,
    places_of_the_stalls: Status.SEAT_NOT_FOUND,
    the_best_of_the_floor: Status.SEAT_NOT_FOUND,
    a_blocked_seat: Status.SEAT_NOT_AVAILABLE,
    a_sold_seat: Status.SEAT_NOT_AVAILABLE,
    a_held_seat: Status.SEAT_HELD_BY_ANOTHER_USER,
    the_best_of_no_zone: Status.INVALID_REQUEST,
    the_best_of_a_zone_twice: Status.INVALID_REQUEST,
    the_best_of_stalls_and_floor: Status.SEAT_NOT_FOUND,
    more_than_the_zone_has: Status.NO_AVAILABLE_SEATS,
    more_places_than_there_are: Status.BLOCK_AT_CAPACITY,
}
LIMITED = {
    more_live_than_a_user_may: Status.USER_LIMIT_EXCEEDED,
    more_live_than_an_address_may: Status.ADDRESS_LIMIT_EXCEEDED,
    more_in_the_window_than_a_user_may: Status.RATE_LIMIT_EXCEEDED,
    the_best_of_too_many: Status.TOO_MANY_SEATS,
}


@pytest.mark.parametrize("scene", PLAIN, ids=lambda scene: scene.__name__)
async def test_a_refusal_says_why(hall: Hall, scene: Scene) -> None:
    reply = await scene(hall)

    assert (reply.status, reply.hold_id, reply.position.seq) == (PLAIN[scene], None, 0)


@pytest.mark.parametrize("scene", LIMITED, ids=lambda scene: scene.__name__)
async def test_a_limit_says_which(open_hall: OpenHall, scene: Scene) -> None:
    async with open_hall(document(policy=LIMITS)) as hall:
        reply = await scene(hall)

        assert (reply.status, reply.hold_id, reply.position.seq) == (LIMITED[scene], None, 0)


async def test_a_refusal_writes_nothing(open_hall: OpenHall) -> None:
    async with open_hall(document(policy=LIMITS, floor=4)) as hall:
        user = uuid4()
        await held(hall, "A-1", "A-2", "A-3", user=user, address="here")
        lapsed = await held(hall, "B-1", "B-2")
        await held(hall, places=2)
        await hall.lapse(lapsed)
        blocked = seats(hall, "C-1")
        await hall.backend.block_seats(hall.event, seats=blocked)

        # Each of these looks at the overdue hold, or would need it to go, and is refused for another reason.
        async with unchanged(hall):
            replies = [
                await hold(hall, "A-1", "B-1"),
                await hold(hall, "B-1", "C-1"),
                await hold(hall, "B-1", "B-2", user=user),
                await hold(hall, "B-1", places=3),
                await hold(hall, "B-1", "B-2", "B-3", address="here"),
                await hall.backend.allocate_seats(hall.event, somebody(user), zones=[0], count=2),
            ]

        assert [reply.status for reply in replies] == [
            Status.SEAT_HELD_BY_ANOTHER_USER,
            Status.SEAT_NOT_AVAILABLE,
            Status.USER_LIMIT_EXCEEDED,
            Status.BLOCK_AT_CAPACITY,
            Status.ADDRESS_LIMIT_EXCEEDED,
            Status.USER_LIMIT_EXCEEDED,
        ]


async def test_a_refusal_says_what_is_in_the_way_and_when_it_may_lift(hall: Hall) -> None:
    first = await hold(hall, "A-1", ttl_ms=60_000)
    second = await hold(hall, "A-2", ttl_ms=120_000)
    await held(hall, places=45)

    taken = await hold(hall, "A-3", "A-2", "A-1")
    full = await hold(hall, places=8)

    assert list(taken.seats) == seats(hall, "A-2", "A-1")
    assert taken.until_ms == second.until_ms > first.until_ms
    assert list(full.quantities) == [Pair(1, 3)]


async def test_what_is_sold_never_lifts_and_of_what_is_blocked_nobody_knows(hall: Hall) -> None:
    sold = await held(hall, "A-1")
    await hall.backend.confirm_holds(hall.event, [sold], sale="sale-1", user_id=None)
    await hall.backend.block_seats(hall.event, seats=seats(hall, "A-2"))

    replies = [await hold(hall, *wish) for wish in (("A-1",), ("A-2",), ("A-1", "A-2"), ("A-2", "A-1"))]

    assert {reply.status for reply in replies} == {Status.SEAT_NOT_AVAILABLE}
    assert [reply.until_ms for reply in replies] == [NEVER_MS, 0, NEVER_MS, NEVER_MS]


async def test_the_gravest_reason_is_the_answer(hall: Hall) -> None:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user, fingerprint="wish-1")
    await held(hall, "A-2")
    await hall.backend.block_seats(hall.event, seats=seats(hall, "A-3"))
    (last,) = seats(hall, "A-10")

    async def ask(*wish: Pair, who: UUID = user, id_: UUID | None = None) -> Status:
        holder = somebody(who, hold_id=id_, fingerprint="wish-1")
        return (await hall.backend.hold_seats(hall.event, holder, seats=wish)).status

    own, taken, blocked, nowhere = *seats(hall, "A-1", "A-2", "A-3"), Pair(0, last.value + 1)
    assert await ask(own, taken) is Status.SEAT_HELD_BY_ANOTHER_USER
    assert await ask(own, taken, blocked) is Status.SEAT_NOT_AVAILABLE
    assert await ask(own, taken, blocked, nowhere) is Status.SEAT_NOT_FOUND
    assert await ask(taken, nowhere, id_=hold_id) is Status.REPEATED
    assert await ask(taken, taken, id_=hold_id) is Status.INVALID_REQUEST
    old = hall.event
    await change(hall, state=EventState.CANCELLED, sale_end=PAST)
    assert await ask(taken, nowhere) is Status.EVENT_UNAVAILABLE
    hall.event = old
    assert await ask(taken, nowhere) is Status.STALE_CONFIG
    assert await ask(taken, id_=hold_id) is Status.REPEATED
    assert await ask(taken, who=uuid4(), id_=hold_id) is Status.HOLD_ID_REUSED


async def test_the_window_moves_on(open_hall: OpenHall) -> None:
    policy = msgspec.structs.replace(LIMITS, max_holds_per_user=None, max_holds_per_ip=None)
    async with open_hall(document(policy=policy)) as hall:
        user = uuid4()
        first = await held(hall, "A-1", "A-2", "A-3", user=user)
        second = await hold(hall, "A-4", "A-5", user=user)

        refused = await hold(hall, "B-1", "B-2", user=user)
        assert refused.status is Status.RATE_LIMIT_EXCEEDED
        assert refused.until_ms <= second.now_ms + policy.rate_limit_seconds * 1000

        # The limit counts seats that were reserved, and the oldest reservation leaves the window first.
        await hall.backdate(first, policy.rate_limit_seconds * 1000)
        assert (await hold(hall, "B-1", "B-2", user=user)).status is Status.DONE
