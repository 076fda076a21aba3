"""load_event: the map of an event, block by block, before it opens."""

from uuid import uuid4

import pytest

from holdfast.engine.layout import compile_event
from holdfast.engine.status import Status
from support.engine import Stage, document
from support.scripts import audited, call, refused


@pytest.fixture
def new(on: Stage) -> Stage:
    """The same server, and an event that is not open yet."""
    return Stage(on.redis, on.backend, compile_event(uuid4(), document()))


async def loaded(new: Stage) -> bytes | None:
    return await new.redis.get(new.keys.key("loading"))


async def test_done(new: Stage) -> None:
    first = await call(new, "load_event", offset=b"0", block=b"..b|")
    second = await call(new, "load_event", offset=b"4", block=b"b.|")

    assert (first["status"], first["loaded"]) == (Status.DONE, 4)
    assert (second["status"], second["loaded"]) == (Status.DONE, 7)
    assert await loaded(new) == b"..b|b.|"


async def test_done_at_zero_starts_over(new: Stage) -> None:
    await call(new, "load_event", offset=b"0", block=b"....|")
    await call(new, "load_event", offset=b"5", block=b"....|")

    reply = await call(new, "load_event", offset=b"0", block=b"bb")

    assert (reply["status"], reply["loaded"]) == (Status.DONE, 2)
    assert await loaded(new) == b"bb"


async def test_done_sells_nothing_yet(new: Stage) -> None:
    await call(new, "load_event", block=new.event.map)

    assert (await new.hold("A-1")).status is Status.EVENT_NOT_FOUND


async def test_a_hundred_thousand_seats_in_blocks(server_url: str) -> None:
    """As the backend loads them: two blocks, then the event opens with exactly that map."""
    async with audited(server_url, document(rows=250, per_row=400)) as on:
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)

        assert reading.map == on.event.map
        assert len(reading.map) == 100_250
        assert (reading.zones[0].seats, reading.zones[0].capacity) == (100_000, 100_000)
        assert (await on.hold("A-1", "R249-400")).status is Status.DONE
        assert not await on.redis.exists(on.keys.key("loading"))


async def test_the_largest_block(new: Stage) -> None:
    assert (await call(new, "load_event", block=b"." * 65_536))["loaded"] == 65_536


async def test_fenced(new: Stage) -> None:
    await new.redis.delete(new.keys.key("open"))

    await refused(new, Status.FENCED, "load_event")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("offset", b""),
        ("offset", b"-1"),
        ("offset", b"1.5"),
        ("offset", b"start"),
        ("offset", b"16777216"),
        ("block", b""),
        ("block", b"." * 65_537),
        ("block", b"..h"),  # Nothing is held, sold or kept before the event opens.
        ("block", b"s.."),
        ("block", b".c."),
        ("block", b". ."),
        ("block", b".\0."),
        ("block", b"..\n"),
        ("block", b"\xff"),
    ],
)
async def test_invalid_request(new: Stage, argument: str, value: bytes) -> None:
    await refused(new, Status.INVALID_REQUEST, "load_event", **{argument: value})

    assert (await call(new, "load_event"))["status"] is Status.DONE


async def test_event_exists(on: Stage) -> None:
    reply = await refused(on, Status.EVENT_EXISTS, "load_event", block=b"....")

    assert reply["loaded"] == 0


@pytest.mark.parametrize("offset", [b"1", b"3", b"5", b"16777215"])
async def test_load_incomplete(new: Stage, offset: bytes) -> None:
    """A block that is lost or sent twice must not shift the seats behind it."""
    await call(new, "load_event", block=b"....")

    reply = await refused(new, Status.LOAD_INCOMPLETE, "load_event", offset=offset)

    assert reply["loaded"] == 4


async def test_load_incomplete_before_the_first_block(new: Stage) -> None:
    reply = await refused(new, Status.LOAD_INCOMPLETE, "load_event", offset=b"4")

    assert reply["loaded"] == 0
