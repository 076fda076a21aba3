"""read_holds: holds by id, or those of one user."""

from uuid import UUID, uuid4

import pytest

from holdfast.engine.backend import HoldsReading
from holdfast.engine.status import Status
from support.engine import Stage, document
from support.scripts import audited, call, held, pairs, places_held, reap, refused, release, sell, unchanged


async def read(on: Stage, *hold_ids: UUID, user: UUID | None = None) -> HoldsReading:
    async with unchanged(on):
        return await on.backend.read_holds(on.event.organization_id, on.event.event_id, user_id=user, hold_ids=hold_ids)


async def test_done_by_id(on: Stage) -> None:
    first, second = await on.hold("A-1", "A-2", cart="cart-1"), await on.hold("A-3")
    assert first.hold_id is not None
    assert second.hold_id is not None

    reading = await read(on, second.hold_id, uuid4(), first.hold_id)

    assert reading.status is Status.DONE
    assert [each.hold_id for each in reading.holds] == [second.hold_id, first.hold_id]
    assert [each.ends_ms for each in reading.holds] == [second.until_ms, first.until_ms]
    assert reading.holds[1].record.seats == pairs(on, "A-1", "A-2")
    assert reading.holds[1].record.cart == "cart-1"
    assert reading.position.seq == len(await on.log())


async def test_done_for_a_user(on: Stage) -> None:
    user = uuid4()
    own = [await held(on, "A-1", user=user), await places_held(on, 2, user=user)]
    await held(on, "A-2")

    reading = await read(on, user=user)

    assert [each.hold_id for each in reading.holds] == own
    assert {each.record.user_id for each in reading.holds} == {user}


async def test_done_leaves_out_other_users_holds(on: Stage) -> None:
    user = uuid4()
    own, others = await held(on, "A-1", user=user), await held(on, "A-2")

    assert [each.hold_id for each in (await read(on, others, own, user=user)).holds] == [own]
    assert (await read(on, own, user=uuid4())).holds == ()


async def test_done_says_how_a_hold_ended(on: Stage) -> None:
    user = uuid4()
    released, sold, lapsed = [await held(on, seat, user=user) for seat in ("A-1", "A-2", "A-3")]
    await release(on, released)
    await sell(on, sold)
    await on.lapse(lapsed)
    await reap(on)

    reading = await read(on, user=user)

    assert {each.hold_id: (each.record.state, each.ends_ms) for each in reading.holds} == {
        released: ("r", 0),
        sold: ("s", 0),
        lapsed: ("x", 0),
    }


async def test_done_with_nothing_on_record(on: Stage) -> None:
    reading = await read(on, user=uuid4())

    assert (reading.status, reading.holds) == (Status.DONE, ())


async def test_done_for_an_event_that_does_not_exist(on: Stage) -> None:
    """It has no holds; whether there is such an event is not this script's question."""
    hold_id = await held(on, "A-1")

    reading = await on.backend.read_holds(uuid4(), on.event.event_id, user_id=None, hold_ids=[hold_id])

    assert (reading.status, reading.holds) == (Status.DONE, ())


async def test_done_for_as_many_holds_as_a_user_can_have(server_url: str) -> None:
    async with audited(server_url, document(floor=500)) as on:
        user = uuid4()
        own = [await places_held(on, 1, user=user) for _ in range(128)]

        assert [each.hold_id for each in (await read(on, user=user)).holds] == own
        assert len((await read(on, *own[:100])).holds) == 100


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "read_holds")


@pytest.mark.parametrize(
    "bad",
    [
        {"user": b"", "holds": b""},
        {"user": b"x" * 15},
        {"user": b"x" * 17},
        {"user": b"x" * 15, "holds": b""},
        {"holds": b"x" * 15},
        {"holds": b"x" * 32},  # The same id twice.
        {"holds": b"".join(uuid4().bytes for _ in range(101))},
    ],
)
async def test_invalid_request(on: Stage, bad: dict[str, bytes]) -> None:
    reply = await refused(on, Status.INVALID_REQUEST, "read_holds", **bad)

    assert (reply["holds"], reply["ends_ms"], reply["records"]) == (b"", b"", [])
    assert (await call(on, "read_holds"))["status"] is Status.DONE
