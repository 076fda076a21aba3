"""What becomes of holds on both backends: more time, release, sale, expiry, and payments that land late."""

from uuid import uuid4

import pytest
from conformance.halls import Hall, OpenHall, change, held, hold, letters, reading, seats, unchanged

from holdfast.engine.backend import HoldsReply
from holdfast.engine.layout import EventState
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from support.engine import document

MINUTE_MS = 60_000


async def extend(hall: Hall, *hold_ids: object, user: object, key: str = "key-1", **wish: object) -> HoldsReply:
    request: dict = {"extension_ms": 5 * MINUTE_MS, "total_ms": 20 * MINUTE_MS, **wish}
    return await hall.backend.extend_holds(hall.event, hold_ids, user_id=user, key=key, **request)


async def sell(hall: Hall, *hold_ids: object, sale: str = "sale-1", user: object = None) -> HoldsReply:
    return await hall.backend.confirm_holds(hall.event, hold_ids, sale=sale, user_id=user)


async def release(hall: Hall, *hold_ids: object, user: object = None, **wish: object) -> HoldsReply:
    request: dict = {"reason": "user_cancelled", **wish}
    return await hall.backend.release_holds(hall.event, hold_ids, user_id=user, **request)


async def test_an_extension_is_bounded_and_recognised(hall: Hall) -> None:
    user = uuid4()
    first = await hold(hall, "A-1", user=user, ttl_ms=10 * MINUTE_MS)
    second = await hold(hall, "A-2", user=user, ttl_ms=18 * MINUTE_MS)
    ids = (first.hold_id, second.hold_id)

    longer = await extend(hall, *ids, user=user)
    assert (longer.status, longer.outcomes) == (Status.DONE, (Status.DONE, Status.DONE))
    assert longer.ends_ms == (first.until_ms + 5 * MINUTE_MS, second.until_ms + 2 * MINUTE_MS)

    async with unchanged(hall):
        again = await extend(hall, *ids, user=user)
    assert (again.status, again.ends_ms, again.position) == (Status.REPEATED, longer.ends_ms, longer.position)

    async with unchanged(hall):
        no_more = await extend(hall, second.hold_id, user=user, key="key-2")
    assert no_more.status is Status.EXTENSION_LIMIT


async def test_extensions_are_refused_for_the_gravest_reason(hall: Hall) -> None:
    user = uuid4()
    live, sold, gone, late = [await held(hall, f"A-{i}", user=user) for i in range(1, 5)]
    strangers = await held(hall, "B-1")
    await sell(hall, sold)
    await release(hall, gone)
    await hall.lapse(late)

    async with unchanged(hall):
        assert (await extend(hall, live, late, user=user)).status is Status.HOLD_EXPIRED
        assert (await extend(hall, live, late, gone, user=user)).status is Status.HOLD_RELEASED
        assert (await extend(hall, live, late, gone, sold, user=user)).status is Status.HOLD_SOLD
        assert (await extend(hall, live, sold, strangers, user=user)).status is Status.NOT_HOLD_OWNER
        unknown = await extend(hall, live, strangers, uuid4(), user=user)
        assert (unknown.status, unknown.outcomes) == (
            Status.HOLD_NOT_FOUND,
            (Status.DONE, Status.NOT_HOLD_OWNER, Status.HOLD_NOT_FOUND),
        )
        assert (await extend(hall, live, live, user=user)).status is Status.INVALID_REQUEST
        assert (await extend(hall, live, user=user, key="")).status is Status.INVALID_REQUEST
        assert (await extend(hall, user=user)).status is Status.INVALID_REQUEST
        assert (await extend(hall, live, user=user, extension_ms=0)).status is Status.INVALID_REQUEST


async def test_a_checkout_keeps_its_holds(hall: Hall) -> None:
    user = uuid4()
    taken, other = await held(hall, "A-1", user=user), await held(hall, "A-2", user=user)
    begun = await extend(hall, taken, user=user, checkout="checkout-1")
    assert begun.status is Status.DONE

    async with unchanged(hall):
        assert (await extend(hall, taken, user=user, key="key-2")).status is Status.HOLD_IN_CHECKOUT
        assert (await release(hall, taken, user=user)).status is Status.HOLD_IN_CHECKOUT
        assert (await sell(hall, taken, sale="sale-2")).status is Status.HOLD_IN_CHECKOUT
        assert (await release(hall, other, user=user, checkout="checkout-1")).status is Status.HOLD_IN_CHECKOUT

    ended = await release(hall, taken, user=user, checkout="checkout-1", reason="payment_failed")
    assert (ended.status, list(ended.seats)) == (Status.DONE, seats(hall, "A-1"))


async def test_a_checkout_that_ends_gives_up_what_had_expired(hall: Hall) -> None:
    user = uuid4()
    taken = await held(hall, "A-1", user=user)
    await extend(hall, taken, user=user, checkout="checkout-1")
    await hall.lapse(taken)
    await hall.backend.expire_holds(hall.event.organization_id, hall.event.event_id, limit=10)

    ended = await release(hall, taken, checkout="checkout-1", reason="payment_failed")

    assert (ended.status, ended.seats) == (Status.DONE, ())
    assert (await sell(hall, taken, sale="checkout-1")).status is Status.HOLD_RELEASED


async def test_a_checkout_ends_with_holds_that_are_not_on_record(hall: Hall) -> None:
    taken = await held(hall, "A-1")

    ended = await release(hall, uuid4(), checkout="checkout-1", reason="payment_failed")
    mixed = await release(hall, taken, uuid4(), checkout="checkout-1")

    assert (ended.status, ended.outcomes, ended.seats) == (Status.DONE, (Status.DONE,), ())
    assert (mixed.status, mixed.outcomes) == (Status.DONE, (Status.HOLD_IN_CHECKOUT, Status.DONE))
    assert mixed.position.seq == ended.position.seq + 1


async def test_a_release_gives_everything_back_once(hall: Hall) -> None:
    user = uuid4()
    hold_id = await held(hall, "A-1", "A-2", places=3, user=user)

    gone = await release(hall, hold_id, user=user)
    assert (gone.status, list(gone.seats), list(gone.quantities)) == (
        Status.DONE,
        seats(hall, "A-1", "A-2"),
        [Pair(1, 3)],
    )
    assert await letters(hall, "A-1", "A-2") == ".."
    assert [zone.held for zone in (await reading(hall)).zones] == [0, 0]

    async with unchanged(hall):
        again = await release(hall, hold_id, user=user)
    assert (again.status, again.position, again.seats) == (Status.HOLD_RELEASED, gone.position, ())


async def test_a_release_does_what_it_can(hall: Hall) -> None:
    user = uuid4()
    live, late, sold = [await held(hall, f"A-{i}", user=user) for i in (1, 2, 3)]
    strangers = await held(hall, "B-1")
    await sell(hall, sold)
    await hall.lapse(late)

    async with unchanged(hall):
        assert (await release(hall, live, strangers, user=user)).status is Status.NOT_HOLD_OWNER
        assert (await release(hall, live, reason="no reason")).status is Status.INVALID_REQUEST
        assert (await release(hall, uuid4())).status is Status.HOLD_NOT_FOUND
        assert (await release(hall, sold)).status is Status.HOLD_SOLD

    mixed = await release(hall, live, late, sold, uuid4())
    assert (mixed.status, mixed.outcomes) == (
        Status.DONE,
        (Status.DONE, Status.HOLD_EXPIRED, Status.HOLD_SOLD, Status.HOLD_NOT_FOUND),
    )
    assert await letters(hall, "A-1", "A-2", "A-3", "B-1") == "..sh"


async def test_a_sale_is_final_and_recognised(hall: Hall) -> None:
    user = uuid4()
    first, second = await held(hall, "A-1", places=2, user=user), await held(hall, "A-2", user=user)

    async with unchanged(hall):
        assert (await sell(hall, first, user=uuid4())).status is Status.NOT_HOLD_OWNER
        assert (await sell(hall, first, uuid4())).status is Status.HOLD_NOT_FOUND
        assert (await sell(hall, first, sale="")).status is Status.INVALID_REQUEST
    sold = await sell(hall, first, second, user=user)
    assert (sold.status, list(sold.seats), list(sold.quantities)) == (
        Status.DONE,
        seats(hall, "A-1", "A-2"),
        [Pair(1, 2)],
    )
    assert [(zone.held, zone.sold) for zone in (await reading(hall)).zones] == [(0, 2), (0, 2)]
    assert await letters(hall, "A-1", "A-2") == "ss"

    async with unchanged(hall):
        again = await sell(hall, first, second)
        assert (again.status, again.position) == (Status.REPEATED, sold.position)
        assert (await sell(hall, first, sale="sale-2")).status is Status.HOLD_SOLD
        assert (await release(hall, first)).status is Status.HOLD_SOLD


async def test_nothing_of_a_cancelled_event_is_sold(hall: Hall) -> None:
    hold_id = await held(hall, "A-1")
    await change(hall, state=EventState.CANCELLED)

    async with unchanged(hall):
        assert (await sell(hall, hold_id)).status is Status.EVENT_UNAVAILABLE


@pytest.mark.parametrize("reaped", [True, False])
async def test_a_late_payment_sells_what_nobody_else_has(hall: Hall, reaped: bool) -> None:
    hold_id = await held(hall, "A-1", "A-2", places=2)
    await hall.lapse(hold_id)
    if reaped:
        reply = await hall.backend.expire_holds(hall.event.organization_id, hall.event.event_id, limit=10)
        assert (reply.status, reply.expired) == (Status.DONE, 1)
        assert await letters(hall, "A-1", "A-2") == ".."

    late = await sell(hall, hold_id)

    assert (late.status, list(late.seats)) == (Status.DONE, seats(hall, "A-1", "A-2"))
    assert [(zone.held, zone.sold) for zone in (await reading(hall)).zones] == [(0, 2), (0, 2)]


async def test_a_late_payment_loses_to_whoever_came_meanwhile(hall: Hall) -> None:
    hold_id = await held(hall, "A-1", "A-2")
    await hall.lapse(hold_id)
    rival = await held(hall, "A-2", "A-3")

    async with unchanged(hall):
        lost = await sell(hall, hold_id)
    assert (lost.status, list(lost.seats)) == (Status.SEATS_LOST, seats(hall, "A-2"))

    # Once the rival is past its time too, the payment takes the seat back and the rival's other seat comes free.
    await hall.lapse(rival)
    assert (await sell(hall, hold_id)).status is Status.DONE
    assert await letters(hall, "A-1", "A-2", "A-3") == "ss."


async def test_of_two_expired_holds_of_a_seat_one_sale_sells_one(hall: Hall) -> None:
    first = await held(hall, "A-1")
    await hall.lapse(first)
    second = await held(hall, "A-1")
    await hall.lapse(second)
    await hall.backend.expire_holds(hall.event.organization_id, hall.event.event_id, limit=10)

    async with unchanged(hall):
        both = await sell(hall, first, second)
    assert (both.status, both.outcomes) == (Status.SEATS_LOST, (Status.DONE, Status.SEATS_LOST))


async def test_a_late_payment_needs_room_for_its_places(open_hall: OpenHall) -> None:
    async with open_hall(document(floor=4)) as hall:
        late = await held(hall, places=3)
        await hall.lapse(late)
        rival = await held(hall, places=3)

        async with unchanged(hall):
            lost = await sell(hall, late)
        assert (lost.status, list(lost.quantities)) == (Status.SEATS_LOST, [Pair(1, 2)])

        await hall.lapse(rival)
        assert (await sell(hall, late)).status is Status.DONE


async def test_the_reaper_takes_the_oldest_first_and_a_bounded_number(hall: Hall) -> None:
    ids = (hall.event.organization_id, hall.event.event_id)
    holds = [await held(hall, f"A-{i}") for i in range(1, 6)]
    await held(hall, "B-1")
    await hall.lapse(*holds)

    first = await hall.backend.expire_holds(*ids, limit=3)
    rest = await hall.backend.expire_holds(*ids, limit=3)
    async with unchanged(hall):
        none = await hall.backend.expire_holds(*ids, limit=3)
        assert (await hall.backend.expire_holds(*ids, limit=0)).status is Status.INVALID_REQUEST
        assert (await hall.backend.expire_holds(uuid4(), ids[1], limit=3)).status is Status.EVENT_NOT_FOUND

    assert [reply.expired for reply in (first, rest, none)] == [3, 2, 0]
    assert none.position.seq == 0
    assert [zone.held for zone in (await reading(hall)).zones] == [1, 0]


async def test_nothing_becomes_of_holds_where_the_shard_is_not_served(hall: Hall) -> None:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user)
    await hall.take_out_of_service()

    async with unchanged(hall):
        assert (await extend(hall, hold_id, user=user)).status is Status.FENCED
        assert (await release(hall, hold_id)).status is Status.FENCED
        assert (await sell(hall, hold_id)).status is Status.FENCED
        ids = (hall.event.organization_id, hall.event.event_id)
        assert (await hall.backend.expire_holds(*ids, limit=3)).status is Status.FENCED
        assert (await hall.backend.read_event(*ids, want_map=True)).status is Status.FENCED
        assert (await hall.backend.read_holds(*ids, user_id=user)).status is Status.FENCED
