"""allocate_accessible_seats: a wheelchair seat with companion seats of it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.layout import EventState, Policy, compile_event
from holdfast.engine.status import Status
from support.engine import UNLIMITED, Stage, accessible_document
from support.scripts import audited, entries, held, pairs, reap, refused, release, unchanged

NAME = "allocate_accessible_seats"


@pytest.fixture
async def on(server_url: str) -> AsyncIterator[Stage]:
    async with audited(server_url, accessible_document()) as stage:
        yield stage


def limited(**limits: Any) -> Policy:
    return msgspec.structs.replace(UNLIMITED, **limits)


async def allocate(on: Stage, count: int, *, user: UUID | None = None, **holder: Any) -> HoldReply:
    who = Holder(hold_id=holder.pop("hold_id", None) or uuid4(), user_id=user or uuid4(), **holder)
    return await on.backend.allocate_seats(on.event, who, zones=[0], count=count, accessible=True)


async def test_done(on: Stage) -> None:
    reply = await allocate(on, 2)

    assert (reply.status, reply.seats, reply.quantities) == (Status.DONE, pairs(on, "A-1", "A-2"), ())
    assert [entry.operation for entry in (await entries(on))[-2:]] == ["hold", "accessible"]
    assert reply.position.seq == (await entries(on))[-2].seq


async def test_done_with_the_seats_of_overdue_holds(on: Stage) -> None:
    await held(on, "A-1")
    await on.lapse(await held(on, "B-3", "B-1"))

    assert (await allocate(on, 3)).seats == pairs(on, "B-1", "B-2", "B-3")


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, NAME)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("stretches", b""), ("stretches", b"x"), ("count", b"0"), ("rules", b""), ("user", b"")],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, NAME, **{argument: value})


async def test_too_many_seats(server_url: str) -> None:
    doc = accessible_document(policy=limited(max_seats_per_booking=2))
    async with audited(server_url, doc) as on, unchanged(on):
        assert (await allocate(on, 3)).status is Status.TOO_MANY_SEATS


async def test_event_not_found(on: Stage) -> None:
    on.event = compile_event(uuid4(), on.event.document)
    async with unchanged(on):
        assert (await allocate(on, 1)).status is Status.EVENT_NOT_FOUND


async def test_hold_id_reused(on: Stage) -> None:
    user = uuid4()
    hold_id = await held(on, "A-5", user=user, fingerprint="one")

    async with unchanged(on):
        assert (await allocate(on, 1, user=user, hold_id=hold_id, fingerprint="two")).status is Status.HOLD_ID_REUSED


async def test_hold_released(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    await allocate(on, 1, user=user, hold_id=hold_id)
    await release(on, hold_id)

    async with unchanged(on):
        assert (await allocate(on, 1, user=user, hold_id=hold_id)).status is Status.HOLD_RELEASED


async def test_hold_expired(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    await allocate(on, 1, user=user, hold_id=hold_id)
    await on.lapse(hold_id)
    assert await reap(on) == 1

    async with unchanged(on):
        assert (await allocate(on, 1, user=user, hold_id=hold_id)).status is Status.HOLD_EXPIRED


async def test_repeated(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    first = await allocate(on, 2, user=user, hold_id=hold_id)

    async with unchanged(on):
        again = await allocate(on, 2, user=user, hold_id=hold_id)
    assert (again.status, again.seats, again.position) == (Status.REPEATED, first.seats, first.position)


async def test_stale_config(on: Stage) -> None:
    old = on.event
    await on.change(name="Another night")
    on.event = old

    async with unchanged(on):
        assert (await allocate(on, 1)).status is Status.STALE_CONFIG


@pytest.mark.parametrize(
    ("state", "status"),
    [(EventState.CANCELLED, Status.EVENT_UNAVAILABLE), (EventState.CLOSED, Status.EVENT_NOT_AVAILABLE)],
)
async def test_event_unavailable_or_not_available(on: Stage, state: EventState, status: Status) -> None:
    await on.change(state=state)

    async with unchanged(on):
        assert (await allocate(on, 1)).status is status


async def test_event_not_available_as_a_draft(on: Stage) -> None:
    await on.change(state=EventState.DRAFT)

    async with unchanged(on):
        assert (await allocate(on, 1)).status is Status.EVENT_NOT_AVAILABLE


async def test_event_sales_closed(on: Stage) -> None:
    await on.change(sale_end=datetime.now(UTC) - timedelta(seconds=1))

    async with unchanged(on):
        assert (await allocate(on, 1)).status is Status.EVENT_SALES_CLOSED


async def test_busy(server_url: str) -> None:
    async with audited(server_url, accessible_document(), max_backlog=1) as on, unchanged(on):
        assert (await allocate(on, 1)).status is Status.BUSY


async def test_seat_not_found_in_a_zone_without_seats(on: Stage) -> None:
    who = Holder(hold_id=uuid4(), user_id=uuid4())
    async with unchanged(on):
        reply = await on.backend.allocate_seats(on.event, who, zones=[1], count=1, accessible=True)
    assert (reply.status, reply.quantities) == (Status.SEAT_NOT_FOUND, ((1, 1),))


async def test_no_available_seats(on: Stage) -> None:
    await held(on, "B-2")

    async with unchanged(on):
        assert (await allocate(on, 3)).status is Status.NO_AVAILABLE_SEATS


async def test_wheelchair_limit_exceeded(on: Stage) -> None:
    user = uuid4()
    await allocate(on, 2, user=user)

    async with unchanged(on):
        reply = await allocate(on, 2, user=user)
    assert (reply.status, reply.seats) == (Status.WHEELCHAIR_LIMIT_EXCEEDED, pairs(on, "B-1"))


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"max_holds_per_user": 1}, Status.USER_LIMIT_EXCEEDED),
        ({"max_holds_per_ip": 1}, Status.ADDRESS_LIMIT_EXCEEDED),
        ({"rate_limit_seats": 1}, Status.RATE_LIMIT_EXCEEDED),
    ],
)
async def test_user_limit_exceeded_or_another(server_url: str, limits: dict[str, int], status: Status) -> None:
    async with audited(server_url, accessible_document(policy=limited(**limits))) as on, unchanged(on):
        assert (await allocate(on, 2, address="there")).status is status


async def test_address_limit_exceeded_by_others_there(server_url: str) -> None:
    async with audited(server_url, accessible_document(policy=limited(max_holds_per_ip=2))) as on:
        await held(on, "A-5", address="there")
        async with unchanged(on):
            assert (await allocate(on, 2, address="there")).status is Status.ADDRESS_LIMIT_EXCEEDED


async def test_rate_limit_exceeded_by_what_was_released(server_url: str) -> None:
    async with audited(server_url, accessible_document(policy=limited(rate_limit_seats=2))) as on:
        user = uuid4()
        await release(on, await held(on, "A-5", user=user))
        async with unchanged(on):
            assert (await allocate(on, 2, user=user)).status is Status.RATE_LIMIT_EXCEEDED


async def test_block_at_capacity_where_overdue_holds_make_too_little_room(server_url: str) -> None:
    """The zone takes three people: two have live holds, so two seats together have no room, overdue or not."""
    async with audited(server_url, accessible_document(capacity=3)) as on:
        await held(on, "A-5", "A-6")
        await on.lapse(await held(on, "A-9"))

        async with unchanged(on):
            reply = await allocate(on, 2)
    assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((0, 1),))
