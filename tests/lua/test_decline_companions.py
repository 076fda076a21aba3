"""decline_companions: the buyer of wheelchair seats lets their companion seats go."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from holdfast.engine.backend import AdminReply
from holdfast.engine.records import unpack_blocks
from holdfast.engine.status import Status
from support.engine import Stage, accessible_document
from support.scripts import audited, call, entries, held, pairs, reap, record, refused, release, sell, unchanged


@pytest.fixture
async def on(server_url: str) -> AsyncIterator[Stage]:
    async with audited(server_url, accessible_document()) as stage:
        yield stage


@pytest.fixture
def user() -> UUID:
    return uuid4()


async def decline(on: Stage, hold_id: UUID, user: UUID) -> AdminReply:
    return await on.backend.decline_companions(on.event, hold_id, user_id=user)


async def test_done(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "B-4", "B-1", "B-2", user=user)

    reply = await decline(on, hold_id, user)

    assert (reply.status, reply.seats) == (Status.DONE, pairs(on, "B-1"))
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.seq, entry.hold_ids) == ("decline", reply.position.seq, (hold_id,))
    assert unpack_blocks(entry.body, 1)[0][0].seats == pairs(on, "B-1")
    stored = await record(on, hold_id)
    assert stored is not None
    assert (stored.state, stored.seq) == ("h", reply.position.seq)


async def test_done_after_the_sale(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-1", user=user)
    await sell(on, hold_id)

    assert (await decline(on, hold_id, user)).status is Status.DONE
    assert (await on.hold("A-2")).status is Status.DONE


async def test_repeated(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-1", user=user)
    first = await decline(on, hold_id, user)

    async with unchanged(on):
        again = await decline(on, hold_id, user)

    assert (again.status, again.position, again.seats) == (Status.REPEATED, first.position, first.seats)


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "decline_companions")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("user", b""),
        ("user", b"x" * 17),
        ("hold", b""),
        ("hold", b"x" * 32),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, "decline_companions", **{argument: value})


async def test_event_not_found(on: Stage) -> None:
    await on.redis.delete(on.keys.key("counts"))
    try:
        await refused(on, Status.EVENT_NOT_FOUND, "decline_companions")
    finally:
        await on.redis.delete(on.keys.key("map"))


async def test_hold_not_found(on: Stage) -> None:
    await refused(on, Status.HOLD_NOT_FOUND, "decline_companions")


async def test_not_hold_owner(on: Stage) -> None:
    hold_id = await held(on, "A-1")

    await refused(on, Status.NOT_HOLD_OWNER, "decline_companions", hold=hold_id.bytes)


async def test_hold_released(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-1", user=user)
    await release(on, hold_id)

    async with unchanged(on):
        assert (await decline(on, hold_id, user)).status is Status.HOLD_RELEASED


@pytest.mark.parametrize("reaped", [True, False])
async def test_hold_expired(on: Stage, user: UUID, reaped: bool) -> None:
    hold_id = await held(on, "A-1", user=user)
    await on.lapse(hold_id)
    if reaped:
        assert await reap(on) == 1

    async with unchanged(on):
        assert (await decline(on, hold_id, user)).status is Status.HOLD_EXPIRED


async def test_seat_not_found_in_a_hold_without_wheelchair_seats(on: Stage, user: UUID) -> None:
    hold_id = await held(on, "A-2", "A-3", user=user)

    await refused(on, Status.SEAT_NOT_FOUND, "decline_companions", hold=hold_id.bytes, user=user.bytes)


async def test_the_audit_entry_says_what_is_kept(on: Stage) -> None:
    hold_id = await held(on, "B-1", "B-3")

    reply = await call(on, "read_event", want_map=b"1")
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids) == ("accessible", (hold_id,))
    wheelchairs, kept = unpack_blocks(entry.body, 2)[0]
    assert (wheelchairs.seats, kept.seats) == (pairs(on, "B-1"), pairs(on, "B-2"))
    assert reply["map"][pairs(on, "B-2")[0].value] == ord("c")
