"""confirm_holds: sells, at most once, what a payment was made for."""

from uuid import UUID, uuid4

import pytest

from holdfast.engine.backend import Holder, HoldsReply
from holdfast.engine.layout import EventState, compile_event
from holdfast.engine.records import unpack_blocks
from holdfast.engine.status import Status
from support.engine import Stage, document
from support.scripts import (
    RETENTION_MS,
    audited,
    call,
    counts,
    entries,
    held,
    kept_for_ms,
    operations,
    pairs,
    places_held,
    reap,
    record,
    refused,
    release,
    seat_byte,
    sell,
    unchanged,
)


async def confirm(on: Stage, *hold_ids: UUID, sale: str = "sale-1", user: UUID | None = None) -> HoldsReply:
    return await on.backend.confirm_holds(on.event, hold_ids, sale=sale, user_id=user)


async def expired(on: Stage, *seat_ids: str, user: UUID | None = None) -> UUID:
    """A hold that the reaper has ended."""
    hold_id = await held(on, *seat_ids, user=user)
    await on.lapse(hold_id)
    assert await reap(on) == 1
    return hold_id


async def test_done(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    who = Holder(hold_id=hold_id, user_id=user)
    await on.backend.hold_seats(on.event, who, seats=pairs(on, "A-1", "B-2"), quantities=[(1, 3)])

    reply = await confirm(on, hold_id, user=user)

    assert reply.status is Status.DONE
    assert reply.outcomes == (Status.DONE,)
    assert (reply.seats, reply.quantities) == (pairs(on, "A-1", "B-2"), ((1, 3),))
    seats, floor = await counts(on, 0), await counts(on, 1)
    assert (seats.held, seats.sold, floor.held, floor.sold) == (0, 2, 0, 3)
    assert (await seat_byte(on, "A-1"), await seat_byte(on, "B-2")) == (b"s", b"s")
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids, entry.seq) == ("sell", (hold_id,), reply.position.seq)
    blocks, rest = unpack_blocks(entry.body, 1)
    assert (blocks[0].seats, blocks[0].quantities, rest) == (reply.seats, reply.quantities, b"h\nsale-1")
    stored = await record(on, hold_id)
    assert stored is not None
    assert (stored.state, stored.seq, stored.checkout) == ("s", reply.position.seq, "sale-1")
    assert await kept_for_ms(on, hold_id, reply.now_ms) == RETENTION_MS


async def test_done_for_several_is_one_log_entry(on: Stage) -> None:
    hold_ids = [await held(on, "A-1", "A-2"), await held(on, "A-3"), await places_held(on, 2)]

    reply = await confirm(on, *hold_ids)

    assert reply.outcomes == (Status.DONE,) * 3
    assert (await entries(on))[-1].hold_ids == tuple(hold_ids)
    assert ((await counts(on, 0)).sold, (await counts(on, 1)).sold) == (3, 2)


async def test_a_sold_seat_stays_sold(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await sell(on, hold_id)

    assert (await on.hold("A-1")).status is Status.SEAT_NOT_AVAILABLE
    await on.age_ended()
    await reap(on)
    # Also when nothing remembers the hold any more.
    assert await record(on, hold_id) is None
    assert (await on.hold("A-1")).status is Status.SEAT_NOT_AVAILABLE
    assert (await counts(on, 0)).sold == 1


async def test_done_though_the_time_is_over_and_nobody_came(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await on.lapse(hold_id)

    assert (await confirm(on, hold_id)).status is Status.DONE
    assert await operations(on) == ["open", "hold", "sell"]


async def test_done_after_expiry_takes_exactly_the_same_seats_again(on: Stage) -> None:
    hold_id = await expired(on, "A-1", "B-7")

    reply = await confirm(on, hold_id)

    assert (reply.status, reply.seats) == (Status.DONE, pairs(on, "A-1", "B-7"))
    zone = await counts(on, 0)
    assert (zone.held, zone.sold) == (0, 2)
    blocks, rest = unpack_blocks((await entries(on))[-1].body, 1)
    assert (blocks[0].seats, rest) == (pairs(on, "A-1", "B-7"), b"x\nsale-1")


async def test_done_after_expiry_takes_the_places_again(server_url: str) -> None:
    async with audited(server_url, document(floor=10)) as on:
        hold_id = await places_held(on, 4)
        await on.lapse(hold_id)
        await reap(on)
        await places_held(on, 6)

        assert (await confirm(on, hold_id)).status is Status.DONE
        floor = await counts(on, 1)
        assert (floor.held, floor.sold) == (6, 4)


async def test_done_where_the_next_holder_is_overdue_too(on: Stage) -> None:
    """A hold past its time never keeps a seat from someone who has paid."""
    hold_id = await expired(on, "A-1", "A-2")
    overdue = await held(on, "A-2", "A-3")
    await on.lapse(overdue)

    reply = await confirm(on, hold_id)

    assert (reply.status, reply.seats) == (Status.DONE, pairs(on, "A-1", "A-2"))
    assert (await operations(on))[-2:] == ["expire", "sell"]
    assert (await entries(on))[-2].hold_ids == (overdue,)
    assert await seat_byte(on, "A-3") == b"."
    assert await kept_for_ms(on, overdue, reply.now_ms) == RETENTION_MS


async def test_done_where_overdue_holds_make_room(server_url: str) -> None:
    async with audited(server_url, document(floor=10)) as on:
        hold_id = await places_held(on, 4)
        await on.lapse(hold_id)
        await reap(on)
        await on.lapse(await places_held(on, 10))

        assert (await confirm(on, hold_id)).status is Status.DONE
        floor = await counts(on, 1)
        assert (floor.held, floor.sold) == (0, 4)


async def test_done_for_a_closed_event(on: Stage) -> None:
    """Sales are closed to new holds; what is in a till is still paid for."""
    hold_id = await held(on, "A-1")
    await on.change(state=EventState.CLOSED)

    assert (await confirm(on, hold_id)).status is Status.DONE


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "confirm_holds")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("sale", b""),
        ("sale", b"x" * 65),
        ("sale", b"two\nlines"),
        ("user", b"x" * 15),
        ("user", b"x" * 17),
        ("retention_ms", b""),
        ("retention_ms", b"-1"),
        ("retention_ms", b"2592000001"),
        ("holds", b""),
        ("holds", b"x" * 15),
        ("holds", b"x" * 32),  # The same id twice.
        ("holds", b"".join(uuid4().bytes for _ in range(51))),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    user = uuid4()
    right = {"user": user.bytes, "holds": (await held(on, "A-1", user=user)).bytes}

    await refused(on, Status.INVALID_REQUEST, "confirm_holds", **right | {argument: value})

    assert (await call(on, "confirm_holds", **right))["status"] is Status.DONE


async def test_event_not_found(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply = await on.backend.confirm_holds(stranger, [hold_id], sale="sale-1", user_id=None)

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_event_unavailable(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await on.change(state=EventState.CANCELLED)

    async with unchanged(on):
        assert (await confirm(on, hold_id)).status is Status.EVENT_UNAVAILABLE


async def test_hold_not_found(on: Stage) -> None:
    hold_id = await held(on, "A-1")

    async with unchanged(on):
        reply = await confirm(on, hold_id, uuid4())

    assert reply.status is Status.HOLD_NOT_FOUND
    assert reply.outcomes == (Status.DONE, Status.HOLD_NOT_FOUND)


async def test_not_hold_owner(on: Stage) -> None:
    user = uuid4()
    own, others = await held(on, "A-1", user=user), await held(on, "A-2")

    async with unchanged(on):
        reply = await confirm(on, own, others, user=user)

    assert reply.status is Status.NOT_HOLD_OWNER
    assert reply.outcomes == (Status.DONE, Status.NOT_HOLD_OWNER)


async def test_hold_released(on: Stage) -> None:
    """Released is a choice, unlike expired: the seats are not taken again, even where they are free."""
    live, released = await held(on, "A-1"), await held(on, "A-2")
    await release(on, released)

    async with unchanged(on):
        reply = await confirm(on, live, released)

    assert reply.status is Status.HOLD_RELEASED
    assert reply.outcomes == (Status.DONE, Status.HOLD_RELEASED)


async def test_hold_sold(on: Stage) -> None:
    live, sold = await held(on, "A-1"), await held(on, "A-2")
    await sell(on, sold, sale="sale-1")

    async with unchanged(on):
        reply = await confirm(on, live, sold, sale="sale-2")

    assert reply.status is Status.HOLD_SOLD
    assert reply.outcomes == (Status.DONE, Status.HOLD_SOLD)


@pytest.mark.parametrize("reaped", [True, False])
async def test_hold_in_checkout(on: Stage, reaped: bool) -> None:
    user = uuid4()
    free, taken = await held(on, "A-1", user=user), await held(on, "A-2", user=user)
    await on.backend.extend_holds(
        on.event, [taken], user_id=user, key="k", extension_ms=60_000, total_ms=1_200_000, checkout="checkout-1"
    )
    if reaped:
        await on.lapse(taken)
        assert await reap(on) == 1

    async with unchanged(on):
        reply = await confirm(on, free, taken, sale="checkout-2")

    assert reply.status is Status.HOLD_IN_CHECKOUT
    assert reply.outcomes == (Status.DONE, Status.HOLD_IN_CHECKOUT)
    await sell(on, taken, sale="checkout-1")


async def test_repeated(on: Stage) -> None:
    hold_ids = [await held(on, "A-1"), await held(on, "A-2")]
    first = await confirm(on, *hold_ids)

    async with unchanged(on):
        again = await confirm(on, *hold_ids)

    assert again.status is Status.REPEATED
    assert again.outcomes == (Status.REPEATED, Status.REPEATED)
    assert again.position == first.position


async def test_repeated_for_some_sells_only_the_others(on: Stage) -> None:
    first, second = await held(on, "A-1"), await held(on, "A-2")
    await confirm(on, first)

    reply = await confirm(on, first, second)

    assert reply.status is Status.DONE
    assert reply.outcomes == (Status.REPEATED, Status.DONE)
    assert reply.seats == pairs(on, "A-2")
    assert (await counts(on, 0)).sold == 2


async def test_seats_lost_names_exactly_those_that_others_have(on: Stage) -> None:
    fine, lapsed = await held(on, "C-1"), await expired(on, "A-1", "A-2", "A-3", "A-4")
    await held(on, "A-2")
    await sell(on, await held(on, "A-3"))
    await on.backend.block_seats(on.event, seats=pairs(on, "A-4"))

    async with unchanged(on):
        reply = await confirm(on, fine, lapsed, sale="sale-2")

    assert reply.status is Status.SEATS_LOST
    assert reply.outcomes == (Status.DONE, Status.SEATS_LOST)
    assert reply.seats == pairs(on, "A-2", "A-3", "A-4")
    assert reply.quantities == ()


async def test_seats_lost_to_the_same_users_next_hold(on: Stage) -> None:
    """The second hold can be sold, by its own id; the first cannot be sold from under it."""
    user = uuid4()
    lapsed = await expired(on, "A-1", user=user)
    live = await held(on, "A-1", user=user)

    async with unchanged(on):
        assert (await confirm(on, lapsed)).status is Status.SEATS_LOST
        both = await confirm(on, lapsed, live)
    assert both.outcomes == (Status.SEATS_LOST, Status.DONE)

    assert (await confirm(on, live)).status is Status.DONE


async def test_seats_lost_to_another_hold_of_the_same_sale(on: Stage) -> None:
    """Two holds had the seat one after the other; one call must not sell it for both."""
    user = uuid4()
    first, second = await expired(on, "A-1", "A-2", user=user), await expired(on, "A-2", "A-3", user=user)

    async with unchanged(on):
        reply = await confirm(on, first, second)

    assert reply.status is Status.SEATS_LOST
    assert reply.seats == pairs(on, "A-2")
    assert (await confirm(on, first)).status is Status.DONE
    assert (await counts(on, 0)).sold == 2


async def test_seats_lost_to_an_overdue_hold_of_the_same_sale(on: Stage) -> None:
    """It does not give way, since it is being sold itself."""
    user = uuid4()
    first, second = await expired(on, "A-1", user=user), await held(on, "A-1", user=user)
    await on.lapse(second)

    async with unchanged(on):
        reply = await confirm(on, first, second)

    assert (reply.status, reply.seats) == (Status.SEATS_LOST, pairs(on, "A-1"))
    assert (await confirm(on, second)).status is Status.DONE


async def test_seats_lost_on_the_floor_says_how_many_places_lack(server_url: str) -> None:
    async with audited(server_url, document(floor=10)) as on:
        hold_id = await places_held(on, 4)
        await on.lapse(hold_id)
        await reap(on)
        await places_held(on, 5)
        await on.backend.block_seats(on.event, quantities=[(1, 2)])

        async with unchanged(on):
            reply = await confirm(on, hold_id)

        assert (reply.status, reply.seats, reply.quantities) == (Status.SEATS_LOST, (), ((1, 1),))


async def test_seats_lost_to_a_capacity_below_the_number_of_seats(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=10, capacity=3)) as on:
        hold_id = await expired(on, "A-1", "A-2")
        await held(on, "A-9", "A-10")

        async with unchanged(on):
            reply = await confirm(on, hold_id)

        assert (reply.status, reply.seats, reply.quantities) == (Status.SEATS_LOST, (), ((0, 1),))


async def test_two_sales_of_one_expired_seat_have_one_winner(on: Stage) -> None:
    first, second = await expired(on, "A-1"), await expired(on, "A-1")

    assert (await confirm(on, first, sale="sale-1")).status is Status.DONE
    async with unchanged(on):
        assert (await confirm(on, second, sale="sale-2")).status is Status.SEATS_LOST
    assert (await counts(on, 0)).sold == 1


async def test_arguments_at_their_bounds(on: Stage) -> None:
    hold_ids = [await held(on, seat) for seat in on.event.seats] + [await places_held(on, 1) for _ in range(20)]
    longest = {"meta": b"m" * 4096, "sale": b"s" * 64, "user": b"", "retention_ms": b"2592000000"}

    reply = await call(on, "confirm_holds", **longest, holds=b"".join(each.bytes for each in hold_ids))

    assert (reply["status"], len(reply["outcomes"])) == (Status.DONE, 50)
