"""read_event: an event as it is at one log entry."""

import asyncio
from uuid import uuid4

import pytest

from holdfast.engine.status import Status
from support.engine import Stage
from support.scripts import call, held, pairs, places_held, refused, sell, unchanged


async def test_done(on: Stage) -> None:
    await held(on, "A-1", "A-2")
    await sell(on, await held(on, "B-1"), await places_held(on, 4))
    await on.backend.block_seats(on.event, seats=pairs(on, "C-10"), quantities=[(1, 3)])

    async with unchanged(on):
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)

    assert reading.status is Status.DONE
    assert (reading.version, reading.state, reading.opens_ms, reading.closes_ms) == (on.event.version, "live", 0, 0)
    assert reading.map == b"hh........|s.........|.........b|"
    assert reading.zones == ((0, 30, 30, 2, 1, 1), (1, 50, 0, 0, 4, 3))
    assert [zone.free for zone in reading.zones] == [26, 43]
    assert reading.position.seq == len(await on.log())


async def test_done_without_the_map(on: Stage) -> None:
    reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=False)

    assert reading.map == b""
    assert len(reading.zones) == 2


async def test_done_is_of_one_moment(on: Stage) -> None:
    """Read while others hold: the map, the counters and the number of the log entry always belong together."""
    holds = [on.hold(seat) for seat in on.event.seats]
    readings = [
        on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True) for _ in range(len(holds))
    ]
    interleaved = [each for pair in zip(holds, readings, strict=True) for each in pair]

    found = (await asyncio.gather(*interleaved))[1::2]

    for reading in found:
        assert reading.map.count(b"h") == reading.zones[0].held == reading.position.seq - 1
    assert {reading.zones[0].held for reading in found} == set(range(1, 31))


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "read_event")


@pytest.mark.parametrize("want_map", [b"", b"2", b"yes", b"-1"])
async def test_invalid_request(on: Stage, want_map: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, "read_event", want_map=want_map)

    assert (await call(on, "read_event", want_map=b"1"))["map"] == on.event.map


async def test_event_not_found(on: Stage) -> None:
    async with unchanged(on):
        reading = await on.backend.read_event(uuid4(), on.event.event_id, want_map=True)

    assert reading.status is Status.EVENT_NOT_FOUND
    assert (reading.version, reading.zones, reading.map) == ("", (), b"")
