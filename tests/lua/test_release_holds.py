"""release_holds: gives seats back, never a sold one, and again without effect."""

from uuid import UUID, uuid4

import pytest

from holdfast.engine.backend import Holder, HoldsReply
from holdfast.engine.layout import compile_event
from holdfast.engine.records import unpack_blocks
from holdfast.engine.status import Status
from support.engine import Stage
from support.scripts import (
    RETENTION_MS,
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
    seat_byte,
    sell,
    unchanged,
)

CHECKOUT = "checkout-1"


async def let_go(
    on: Stage, *hold_ids: UUID, user: UUID | None = None, reason: str = "user_cancelled", checkout: str = ""
) -> HoldsReply:
    return await on.backend.release_holds(on.event, hold_ids, user_id=user, reason=reason, checkout=checkout)


async def take_to_checkout(on: Stage, *seat_ids: str, user: UUID, checkout: str = CHECKOUT) -> list[UUID]:
    """A hold for each seat, all taken by one checkout."""
    hold_ids = [await held(on, each, user=user) for each in seat_ids]
    reply = await on.backend.extend_holds(
        on.event, hold_ids, user_id=user, key=checkout, extension_ms=60_000, total_ms=1_200_000, checkout=checkout
    )
    assert reply.status is Status.DONE
    return hold_ids


@pytest.mark.parametrize("reason", ["user_cancelled", "payment_failed", "admin_override"])
async def test_done(on: Stage, reason: str) -> None:
    user, hold_id = uuid4(), uuid4()
    who = Holder(hold_id=hold_id, user_id=user)
    await on.backend.hold_seats(on.event, who, seats=pairs(on, "A-1", "B-2"), quantities=[(1, 3)])

    reply = await let_go(on, hold_id, user=user, reason=reason)

    assert reply.status is Status.DONE
    assert reply.outcomes == (Status.DONE,)
    assert (reply.seats, reply.quantities) == (pairs(on, "A-1", "B-2"), ((1, 3),))
    assert ((await counts(on, 0)).held, (await counts(on, 1)).held) == (0, 0)
    assert (await seat_byte(on, "A-1"), await seat_byte(on, "B-2")) == (b".", b".")
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids, entry.seq) == ("release", (hold_id,), reply.position.seq)
    blocks, why = unpack_blocks(entry.body, 1)
    assert (blocks[0].seats, blocks[0].quantities, why.decode()) == (reply.seats, reply.quantities, reason)
    stored = await record(on, hold_id)
    assert stored is not None
    assert (stored.state, stored.seq) == ("r", reply.position.seq)
    assert await kept_for_ms(on, hold_id, reply.now_ms) == RETENTION_MS


async def test_done_sets_the_seats_free_for_others(on: Stage) -> None:
    await let_go(on, await held(on, "A-1"))

    assert (await on.hold("A-1")).status is Status.DONE


async def test_done_for_several_is_one_log_entry(on: Stage) -> None:
    hold_ids = [await held(on, seat) for seat in on.event.seats]

    reply = await let_go(on, *hold_ids)

    assert reply.outcomes == (Status.DONE,) * 30
    assert len(reply.seats) == 30
    assert (await entries(on))[-1].hold_ids == tuple(hold_ids)
    assert (await counts(on, 0)).held == 0


async def test_an_administrator_releases_anybodys_hold(on: Stage) -> None:
    first, second = await held(on, "A-1"), await held(on, "A-2")

    assert (await let_go(on, first, second, user=None, reason="admin_override")).status is Status.DONE


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "release_holds")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("user", b"x" * 15),
        ("user", b"x" * 17),
        ("reason", b""),
        ("reason", b"ttl_expired"),
        ("reason", b"because"),
        ("checkout", b"x" * 65),
        ("checkout", b"two\nlines"),
        ("retention_ms", b""),
        ("retention_ms", b"-1"),
        ("retention_ms", b"2592000001"),
        ("retention_ms", b"forever"),
        ("holds", b""),
        ("holds", b"x" * 15),
        ("holds", b"x" * 32),  # The same id twice.
        ("holds", b"".join(uuid4().bytes for _ in range(51))),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    user = uuid4()
    right = {"user": user.bytes, "holds": (await held(on, "A-1", user=user)).bytes}

    await refused(on, Status.INVALID_REQUEST, "release_holds", **right | {argument: value})

    assert (await call(on, "release_holds", **right))["status"] is Status.DONE


async def test_event_not_found(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply = await on.backend.release_holds(stranger, [hold_id], user_id=None, reason="admin_override")

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_not_hold_owner(on: Stage) -> None:
    """One foreign hold keeps all: who asks for it has lost track, or is up to something."""
    user = uuid4()
    own, others = await held(on, "A-1", user=user), await held(on, "A-2")

    async with unchanged(on):
        reply = await let_go(on, own, others, user=user)

    assert reply.status is Status.NOT_HOLD_OWNER


async def test_hold_not_found(on: Stage) -> None:
    async with unchanged(on):
        reply = await let_go(on, uuid4())

    assert reply.status is Status.HOLD_NOT_FOUND
    assert reply.outcomes == (Status.HOLD_NOT_FOUND,)
    assert reply.position.seq == 0


async def test_the_end_of_a_checkout_is_logged_for_what_is_forgotten(on: Stage) -> None:
    forgotten = uuid4()

    reply = await let_go(on, forgotten, reason="payment_failed", checkout=CHECKOUT)

    assert (reply.status, reply.outcomes, reply.seats) == (Status.DONE, (Status.DONE,), ())
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids, reply.position.seq) == ("release", (forgotten,), entry.seq)
    assert entry.body.endswith(b"payment_failed\n" + CHECKOUT.encode())
    assert await record(on, forgotten) is None


async def test_hold_sold(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await sell(on, hold_id)

    async with unchanged(on):
        reply = await let_go(on, hold_id, reason="admin_override")

    assert reply.status is Status.HOLD_SOLD
    assert await seat_byte(on, "A-1") == b"s"


async def test_hold_released(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    first = await let_go(on, hold_id)

    async with unchanged(on):
        again = await let_go(on, hold_id)

    assert again.status is Status.HOLD_RELEASED
    assert (again.seats, again.quantities) == ((), ())
    assert again.position == first.position


async def test_hold_released_does_not_touch_the_next_holder(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await let_go(on, hold_id)
    await held(on, "A-1")

    async with unchanged(on):
        assert (await let_go(on, hold_id)).status is Status.HOLD_RELEASED


async def test_hold_expired_once_it_is_reaped(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await on.lapse(hold_id)
    await reap(on)

    async with unchanged(on):
        assert (await let_go(on, hold_id)).status is Status.HOLD_EXPIRED


async def test_hold_expired_ends_what_is_past_its_time(on: Stage) -> None:
    """Whether the buyer or the reaper came first must not decide how the hold ended."""
    hold_id = await held(on, "A-1")
    await on.lapse(hold_id)

    reply = await let_go(on, hold_id)

    assert reply.status is Status.HOLD_EXPIRED
    assert reply.seats == pairs(on, "A-1")
    entry = (await entries(on))[-1]
    assert entry.operation == "expire"
    assert unpack_blocks(entry.body, 1)[1] == b"ttl_expired"
    stored = await record(on, hold_id)
    assert stored is not None
    assert stored.state == "x"
    assert reply.position.seq == entry.seq
    assert await kept_for_ms(on, hold_id, reply.now_ms) == RETENTION_MS


async def test_holds_that_cannot_be_released_do_not_keep_the_others(on: Stage) -> None:
    live, sold, released, lapsed = [await held(on, seat) for seat in ("A-1", "A-2", "A-3", "A-4")]
    await sell(on, sold)
    await let_go(on, released)
    await on.lapse(lapsed)

    reply = await let_go(on, sold, live, uuid4(), lapsed, released)

    assert reply.status is Status.DONE
    assert reply.outcomes == (
        Status.HOLD_SOLD,
        Status.DONE,
        Status.HOLD_NOT_FOUND,
        Status.HOLD_EXPIRED,
        Status.HOLD_RELEASED,
    )
    assert set(reply.seats) == {on.event.seats["A-1"], on.event.seats["A-4"]}
    assert (await operations(on))[-2:] == ["expire", "release"]
    assert reply.position.seq == (await entries(on))[-1].seq


@pytest.mark.parametrize("reason", ["user_cancelled", "admin_override"])
async def test_hold_in_checkout(on: Stage, reason: str) -> None:
    """A payment may be on its way for it: it ends with its checkout, or by its time."""
    user = uuid4()
    (taken,) = await take_to_checkout(on, "A-1", user=user)

    async with unchanged(on):
        reply = await let_go(on, taken, user=user, reason=reason)

    assert (reply.status, reply.outcomes) == (Status.HOLD_IN_CHECKOUT, (Status.HOLD_IN_CHECKOUT,))


async def test_hold_in_checkout_does_not_keep_the_others(on: Stage) -> None:
    user = uuid4()
    (taken,) = await take_to_checkout(on, "A-1", user=user)
    free = await held(on, "A-2", user=user)

    reply = await let_go(on, taken, free, user=user)

    assert (reply.status, reply.outcomes) == (Status.DONE, (Status.HOLD_IN_CHECKOUT, Status.DONE))
    assert reply.seats == pairs(on, "A-2")


async def test_hold_in_checkout_for_the_end_of_another_one(on: Stage) -> None:
    user = uuid4()
    (taken,) = await take_to_checkout(on, "A-1", user=user)
    free = await held(on, "A-2", user=user)

    async with unchanged(on):
        reply = await let_go(on, taken, free, user=user, checkout="checkout-2")

    assert reply.outcomes == (Status.HOLD_IN_CHECKOUT, Status.HOLD_IN_CHECKOUT)


async def test_what_postgres_refused_is_given_back_from_a_checkout_too(on: Stage) -> None:
    (taken,) = await take_to_checkout(on, "A-1", user=uuid4())

    assert (await let_go(on, taken, reason="not_persisted")).status is Status.DONE


async def test_the_end_of_a_checkout_releases_its_holds_and_says_so_in_the_log(on: Stage) -> None:
    user = uuid4()
    hold_ids = await take_to_checkout(on, "A-1", "A-2", user=user)

    reply = await let_go(on, *hold_ids, user=user, checkout=CHECKOUT)

    assert (reply.status, reply.outcomes) == (Status.DONE, (Status.DONE, Status.DONE))
    assert reply.seats == pairs(on, "A-1", "A-2")
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids) == ("release", tuple(hold_ids))
    assert unpack_blocks(entry.body, 2)[1] == b"user_cancelled\n" + CHECKOUT.encode()


async def test_the_end_of_a_checkout_keeps_a_late_payment_from_what_has_expired(on: Stage) -> None:
    """One hold was reaped, one is past its time, one lives: none of them can be sold afterwards."""
    user = uuid4()
    reaped, lapsed, live = await take_to_checkout(on, "A-1", "A-2", "A-3", user=user)
    await on.lapse(reaped)
    assert await reap(on) == 1
    await on.lapse(lapsed)
    next_holder = await held(on, "A-1")

    reply = await let_go(on, reaped, lapsed, live, reason="payment_failed", checkout=CHECKOUT)

    assert (reply.status, reply.outcomes) == (Status.DONE, (Status.DONE,) * 3)
    assert reply.seats == pairs(on, "A-2", "A-3")
    given_up, released = (await entries(on))[-2:]
    assert (given_up.operation, given_up.hold_ids) == ("release", (reaped,))
    assert unpack_blocks(given_up.body, 1) == ((((), ()),), b"payment_failed\n" + CHECKOUT.encode())
    assert (released.operation, released.hold_ids) == ("release", (lapsed, live))
    assert reply.position.seq == released.seq
    assert await seat_byte(on, "A-1") == b"h"
    async with unchanged(on):
        sale = await on.backend.confirm_holds(on.event, [reaped, lapsed, live], sale=CHECKOUT, user_id=None)
    assert sale.outcomes == (Status.HOLD_RELEASED,) * 3
    async with unchanged(on):
        again = await let_go(on, reaped, lapsed, live, checkout=CHECKOUT)
    assert (again.status, again.position) == (Status.HOLD_RELEASED, reply.position)
    await sell(on, next_holder)


async def test_places_come_back(on: Stage) -> None:
    await let_go(on, await places_held(on, 50))

    assert (await counts(on, 1)).held == 0
    assert await places_held(on, 50)


async def test_arguments_at_their_bounds(on: Stage) -> None:
    hold_ids = [await held(on, seat) for seat in on.event.seats] + [await places_held(on, 1) for _ in range(20)]
    longest = {"meta": b"m" * 4096, "user": b"", "retention_ms": b"2592000000"}

    reply = await call(on, "release_holds", **longest, holds=b"".join(each.bytes for each in hold_ids))

    assert (reply["status"], len(reply["outcomes"])) == (Status.DONE, 50)
