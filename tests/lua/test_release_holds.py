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


async def let_go(on: Stage, *hold_ids: UUID, user: UUID | None = None, reason: str = "user_cancelled") -> HoldsReply:
    return await on.backend.release_holds(on.event, hold_ids, user_id=user, reason=reason)


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


async def test_places_come_back(on: Stage) -> None:
    await let_go(on, await places_held(on, 50))

    assert (await counts(on, 1)).held == 0
    assert await places_held(on, 50)


async def test_arguments_at_their_bounds(on: Stage) -> None:
    hold_ids = [await held(on, seat) for seat in on.event.seats] + [await places_held(on, 1) for _ in range(20)]
    longest = {"meta": b"m" * 4096, "user": b"", "retention_ms": b"2592000000"}

    reply = await call(on, "release_holds", **longest, holds=b"".join(each.bytes for each in hold_ids))

    assert (reply["status"], len(reply["outcomes"])) == (Status.DONE, 50)
