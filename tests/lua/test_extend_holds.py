"""extend_holds: more time, to the owner only, all or none."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.engine.backend import HoldsReply
from holdfast.engine.layout import EventState, compile_event
from holdfast.engine.records import unpack_ends
from holdfast.engine.status import Status
from support.engine import Stage
from support.scripts import backdate, call, entries, held, places_held, reap, record, refused, release, sell, unchanged

MINUTE = 60_000
TTL = 10 * MINUTE


async def extend(on: Stage, *hold_ids: UUID, user: UUID, key: str = "key-1", **changes: Any) -> HoldsReply:
    arguments: dict[str, Any] = {"extension_ms": 5 * MINUTE, "total_ms": 20 * MINUTE} | changes
    return await on.backend.extend_holds(on.event, hold_ids, user_id=user, key=key, **arguments)


async def ends(on: Stage, *hold_ids: UUID) -> tuple[int, ...]:
    return tuple([int(await on.redis.zscore(on.keys.key("expiry"), each.bytes) or 0) for each in hold_ids])


@pytest.fixture
def user() -> UUID:
    return uuid4()


async def test_done(on: Stage, user: UUID) -> None:
    first, second = await on.hold("A-1", user=user), await on.hold("A-2", user=user, ttl_ms=MINUTE)
    assert first.hold_id is not None
    assert second.hold_id is not None

    reply = await extend(on, first.hold_id, second.hold_id, user=user)

    assert reply.status is Status.DONE
    assert reply.outcomes == (Status.DONE, Status.DONE)
    assert reply.ends_ms == (first.until_ms + 5 * MINUTE, second.until_ms + 5 * MINUTE)
    assert await ends(on, first.hold_id, second.hold_id) == reply.ends_ms
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.seq) == ("extend", reply.position.seq)
    assert entry.hold_ids == (first.hold_id, second.hold_id)
    assert unpack_ends(entry.body[:16]) == reply.ends_ms
    assert entry.body[16:] == b"\nkey-1"
    stored = await record(on, first.hold_id)
    assert stored is not None
    assert (stored.state, stored.seq, stored.extension) == ("h", reply.position.seq, "key-1")
    assert (stored.created_ms, stored.ttl_ms) == (first.now_ms, TTL)


async def test_done_with_another_key_extends_again(on: Stage, user: UUID) -> None:
    hold = await on.hold("A-1", user=user)
    assert hold.hold_id is not None
    await extend(on, hold.hold_id, user=user, key="one")

    reply = await extend(on, hold.hold_id, user=user, key="two")

    assert reply.status is Status.DONE
    assert reply.ends_ms == (hold.until_ms + 10 * MINUTE,)


async def test_no_hold_outlives_the_total(on: Stage, user: UUID) -> None:
    hold = await on.hold("A-1", user=user)
    assert hold.hold_id is not None

    reply = await extend(on, hold.hold_id, user=user, extension_ms=60 * MINUTE)

    assert reply.ends_ms == (hold.now_ms + 20 * MINUTE,)


async def test_the_total_is_counted_from_the_making_of_a_hold(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-1", user=user)
    made_ms = await backdate(on, hold_id, 8 * MINUTE)

    reply = await extend(on, hold_id, user=user)

    assert reply.ends_ms == (made_ms + 20 * MINUTE,)


async def test_a_hold_at_its_total_stays_while_the_others_move(on: Stage, user: UUID) -> None:
    long, short = await on.hold("A-1", user=user, ttl_ms=30 * MINUTE), await on.hold("A-2", user=user)
    assert long.hold_id is not None
    assert short.hold_id is not None

    reply = await extend(on, long.hold_id, short.hold_id, user=user)

    # An extension never takes time away, not even from a hold that was given more than the total.
    assert reply.status is Status.DONE
    assert reply.ends_ms == (long.until_ms, short.until_ms + 5 * MINUTE)


async def test_a_checkout_takes_the_hold_and_extends_it_once(on: Stage, user: UUID) -> None:
    hold = await on.hold("A-1", user=user)
    assert hold.hold_id is not None

    first = await extend(on, hold.hold_id, user=user, key="one", checkout="checkout-1")
    second = await extend(on, hold.hold_id, user=user, key="two", checkout="checkout-1")

    assert first.status is Status.DONE
    assert first.ends_ms == (hold.until_ms + 5 * MINUTE,)
    assert (second.status, second.ends_ms) == (Status.DONE, first.ends_ms)
    stored = await record(on, hold.hold_id)
    assert stored is not None
    assert (stored.checkout, stored.extension) == ("checkout-1", "two")
    entry = (await entries(on))[-1]
    assert entry.body[8:] == b"checkout-1\ntwo"


@pytest.mark.parametrize("checkout", ["", "checkout-2"])
async def test_hold_in_checkout(on: Stage, user: UUID, checkout: str) -> None:
    """A payment may be on its way for it: neither its owner nor another checkout moves its end."""
    free, taken = await held(on, "A-1", user=user), await held(on, "A-2", user=user)
    await extend(on, taken, user=user, key="one", checkout="checkout-1")

    async with unchanged(on):
        reply = await extend(on, free, taken, user=user, key="two", checkout=checkout)

    assert reply.status is Status.HOLD_IN_CHECKOUT
    assert reply.outcomes == (Status.DONE, Status.HOLD_IN_CHECKOUT)
    assert reply.ends_ms == ()


async def test_a_checkout_takes_a_hold_that_cannot_be_extended(on: Stage, user: UUID) -> None:
    """The buyer may pay with the time that is left."""
    hold = await on.hold("A-1", user=user, ttl_ms=30 * MINUTE)
    assert hold.hold_id is not None

    reply = await extend(on, hold.hold_id, user=user, checkout="checkout-1")

    assert (reply.status, reply.ends_ms) == (Status.DONE, (hold.until_ms,))
    stored = await record(on, hold.hold_id)
    assert stored is not None
    assert stored.checkout == "checkout-1"


async def test_seats_stay_held(on: Stage, user: UUID) -> None:
    """The old end must not be what others see."""
    hold_id = await held(on, "A-1", user=user)
    reply = await extend(on, hold_id, user=user)

    refusal = await on.hold("A-1")

    assert (refusal.status, refusal.until_ms) == (Status.SEAT_HELD_BY_ANOTHER_USER, reply.ends_ms[0])
    assert await reap(on) == 0


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "extend_holds")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("user", b""),
        ("user", b"x" * 15),
        ("user", b"x" * 17),
        ("key", b""),
        ("key", b"x" * 65),
        ("key", b"two\nlines"),
        ("extension_ms", b""),
        ("extension_ms", b"0"),
        ("extension_ms", b"-60000"),
        ("extension_ms", b"86400001"),
        ("extension_ms", b"1.5"),
        ("extension_ms", b"soon"),
        ("total_ms", b""),
        ("total_ms", b"0"),
        ("total_ms", b"86400001"),
        ("total_ms", b"1e6"),
        ("checkout", b"x" * 65),
        ("checkout", b"two\nlines"),
        ("holds", b""),
        ("holds", b"x" * 15),
        ("holds", b"x" * 17),
        ("holds", b"x" * 32),  # The same id twice.
        ("holds", b"".join(uuid4().bytes for _ in range(51))),
    ],
)
async def test_invalid_request(on: Stage, user: UUID, argument: str, value: bytes) -> None:
    right = {"user": user.bytes, "holds": (await held(on, "A-1", user=user)).bytes}

    await refused(on, Status.INVALID_REQUEST, "extend_holds", **right | {argument: value})

    assert (await call(on, "extend_holds", **right))["status"] is Status.DONE


async def test_event_not_found(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-1", user=user)
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply = await on.backend.extend_holds(
            stranger, [hold_id], user_id=user, key="key-1", extension_ms=MINUTE, total_ms=TTL
        )

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_hold_not_found(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-1", user=user)

    async with unchanged(on):
        reply = await extend(on, hold_id, uuid4(), user=user)

    assert reply.status is Status.HOLD_NOT_FOUND
    assert reply.outcomes == (Status.DONE, Status.HOLD_NOT_FOUND)
    assert reply.ends_ms == ()


async def test_not_hold_owner(on: Stage, user: UUID) -> None:
    own, others = await held(on, "A-1", user=user), await held(on, "A-2")

    async with unchanged(on):
        reply = await extend(on, own, others, user=user)

    assert reply.status is Status.NOT_HOLD_OWNER
    assert reply.outcomes == (Status.DONE, Status.NOT_HOLD_OWNER)


async def test_hold_sold(on: Stage, user: UUID) -> None:
    live, sold = await held(on, "A-1", user=user), await held(on, "A-2", user=user)
    await sell(on, sold)

    async with unchanged(on):
        assert (await extend(on, live, sold, user=user)).status is Status.HOLD_SOLD


async def test_hold_released(on: Stage, user: UUID) -> None:
    live, released = await held(on, "A-1", user=user), await held(on, "A-2", user=user)
    await release(on, released)

    async with unchanged(on):
        assert (await extend(on, live, released, user=user)).status is Status.HOLD_RELEASED


@pytest.mark.parametrize("reaped", [True, False])
async def test_hold_expired(on: Stage, user: UUID, reaped: bool) -> None:
    """Time that is over is not given back, even where nobody has taken the seat since."""
    live, lapsed = await held(on, "A-1", user=user), await held(on, "A-2", user=user)
    await on.lapse(lapsed)
    if reaped:
        assert await reap(on) == 1

    async with unchanged(on):
        reply = await extend(on, live, lapsed, user=user)

    assert reply.status is Status.HOLD_EXPIRED
    assert reply.outcomes == (Status.DONE, Status.HOLD_EXPIRED)


async def test_repeated(on: Stage, user: UUID) -> None:
    hold_ids = [await held(on, "A-1", user=user), await held(on, "A-2", user=user)]
    first = await extend(on, *hold_ids, user=user)

    async with unchanged(on):
        again = await extend(on, *hold_ids, user=user)

    assert again.status is Status.REPEATED
    assert (again.ends_ms, again.position) == (first.ends_ms, first.position)


async def test_repeated_for_some_extends_only_the_others(on: Stage, user: UUID) -> None:
    one, two = await on.hold("A-1", user=user), await on.hold("A-2", user=user)
    assert one.hold_id is not None
    assert two.hold_id is not None
    await extend(on, one.hold_id, user=user)

    reply = await extend(on, one.hold_id, two.hold_id, user=user)

    assert reply.status is Status.DONE
    assert reply.ends_ms == (one.until_ms + 5 * MINUTE, two.until_ms + 5 * MINUTE)


async def test_extension_limit(on: Stage, user: UUID) -> None:
    hold = await on.hold("A-1", user=user, ttl_ms=20 * MINUTE)
    assert hold.hold_id is not None

    async with unchanged(on):
        reply = await extend(on, hold.hold_id, user=user)

    assert reply.status is Status.EXTENSION_LIMIT
    assert reply.ends_ms == (hold.until_ms,)


async def test_a_hold_can_be_extended_though_the_event_no_longer_sells(on: Stage, user: UUID) -> None:
    """Who is at the till when sales close may still pay."""
    hold_id = await held(on, "A-1", user=user)
    await on.change(state=EventState.CLOSED)

    assert (await extend(on, hold_id, user=user)).status is Status.DONE


async def test_arguments_at_their_bounds(on: Stage, user: UUID) -> None:
    hold_ids = [await held(on, seat, user=user) for seat in on.event.seats]
    hold_ids += [await places_held(on, 1, user=user) for _ in range(20)]
    longest = {
        "meta": b"m" * 4096,
        "user": user.bytes,
        "key": b"k" * 64,
        "checkout": b"c" * 64,
        "extension_ms": b"86400000",
        "total_ms": b"86400000",
    }

    reply = await call(on, "extend_holds", **longest, holds=b"".join(each.bytes for each in hold_ids))

    assert (reply["status"], len(reply["outcomes"])) == (Status.DONE, 50)
    assert await ends(on, *hold_ids) == unpack_ends(reply["ends_ms"])
