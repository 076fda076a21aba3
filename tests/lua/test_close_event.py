"""close_event: an event leaves the server."""

from uuid import uuid4

import pytest

from holdfast.engine.keys import EVENT_KEYS
from holdfast.engine.layout import EventState, compile_event
from holdfast.engine.status import Status
from support.engine import Stage
from support.scripts import call, entries, held, reap, refused, release, sell, unchanged


@pytest.mark.parametrize("state", [EventState.DRAFT, EventState.CLOSED, EventState.CANCELLED, EventState.ARCHIVED])
async def test_done(on: Stage, state: EventState) -> None:
    await release(on, await held(on, "A-1"))
    await sell(on, await held(on, "A-2"))
    await on.change(state=state)

    reply = await on.backend.close_event(on.event, meta=b'{"by":1}')

    assert reply.status is Status.DONE
    assert not await on.redis.exists(*[on.keys.key(what) for what in EVENT_KEYS])
    assert not await on.redis.sismember(on.keys.key("events"), on.keys.scope)
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.event_id, entry.body) == ("close", on.event.event_id, b"")
    assert (entry.meta, entry.seq) == (b'{"by":1}', reply.position.seq)


async def test_done_makes_room_for_the_event_to_open_again(on: Stage) -> None:
    await held_and_sold(on, "A-1")
    await on.change(state=EventState.CLOSED)
    await on.backend.close_event(on.event)

    assert (await on.backend.open_event(on.event)).status is Status.DONE
    assert await on.redis.get(on.keys.key("map")) == on.event.map


async def held_and_sold(on: Stage, seat_id: str) -> None:
    await sell(on, await held(on, seat_id))


async def test_fenced(on: Stage) -> None:
    await on.change(state=EventState.CLOSED)
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "close_event")


@pytest.mark.parametrize(("argument", "value"), [("scope", b"x" * 31), ("scope", b""), ("meta", b"x" * 4097)])
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await on.change(state=EventState.CLOSED)

    await refused(on, Status.INVALID_REQUEST, "close_event", **{argument: value})

    assert (await call(on, "close_event"))["status"] is Status.DONE


async def test_event_not_found(on: Stage) -> None:
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        assert (await on.backend.close_event(stranger)).status is Status.EVENT_NOT_FOUND


async def test_event_not_found_once_it_is_closed(on: Stage) -> None:
    await on.change(state=EventState.CLOSED)
    await on.backend.close_event(on.event)

    async with unchanged(on):
        assert (await on.backend.close_event(on.event)).status is Status.EVENT_NOT_FOUND


@pytest.mark.parametrize("state", [EventState.PUBLISHED, EventState.LIVE])
async def test_event_in_use_while_it_sells(on: Stage, state: EventState) -> None:
    await on.change(state=state, name="Changed")

    async with unchanged(on):
        assert (await on.backend.close_event(on.event)).status is Status.EVENT_IN_USE


async def test_event_in_use_while_there_are_holds(on: Stage) -> None:
    """Also overdue ones: their end is not in the log yet."""
    hold_id = await held(on, "A-1")
    await on.change(state=EventState.CLOSED)
    async with unchanged(on):
        assert (await on.backend.close_event(on.event)).status is Status.EVENT_IN_USE

    await on.lapse(hold_id)
    async with unchanged(on):
        assert (await on.backend.close_event(on.event)).status is Status.EVENT_IN_USE

    await reap(on)
    assert (await on.backend.close_event(on.event)).status is Status.DONE


async def test_arguments_at_their_bounds(on: Stage) -> None:
    await on.change(state=EventState.CLOSED)

    assert (await call(on, "close_event", meta=b"m" * 4096))["status"] is Status.DONE
