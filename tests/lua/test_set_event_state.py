"""set_event_state: what changes while an event is open."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.layout import CompiledEvent, EventState, ZoneDocument, compile_event
from holdfast.engine.records import pack_pairs, unpack_pairs
from holdfast.engine.status import Status
from support.engine import Stage
from support.scripts import call, counts, entries, held, pairs, refused, take_places, unchanged


def changed(event: CompiledEvent, **changes: Any) -> CompiledEvent:
    return compile_event(event.organization_id, msgspec.structs.replace(event.document, **changes))


def with_capacities(event: CompiledEvent, *capacities: int) -> tuple[ZoneDocument, ...]:
    zones = zip(event.document.zones, capacities, strict=True)
    return tuple(msgspec.structs.replace(zone, capacity=capacity) for zone, capacity in zones)


async def test_done(on: Stage) -> None:
    old = on.event
    opens, closes = datetime(2026, 1, 1, tzinfo=UTC), datetime(2066, 1, 1, tzinfo=UTC)
    document = msgspec.structs.replace(
        old.document,
        state=EventState.PUBLISHED,
        sale_start=opens,
        sale_end=closes,
        zones=with_capacities(old, 20, 60),
    )

    reply, new = await on.backend.set_event_state(old, document, meta=b'{"by":1}')

    assert reply.status is Status.DONE
    reading = await on.backend.read_event(new.organization_id, new.event_id, want_map=False)
    assert (reading.version, reading.state) == (new.version, "published")
    assert (reading.opens_ms, reading.closes_ms) == (new.opens_ms, new.closes_ms)
    assert [zone.capacity for zone in reading.zones] == [20, 60]
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.meta, entry.seq) == ("state", b'{"by":1}', reply.position.seq)
    words, _, capacities = entry.body.partition(b"\n")
    assert words.decode().split() == [new.version, "published", str(new.opens_ms), str(new.closes_ms)]
    assert unpack_pairs(capacities) == ((0, 20), (1, 60))


async def test_done_takes_effect_on_the_very_next_hold(on: Stage) -> None:
    """Also on a caller who has not heard of it: the version they compiled is no longer the current one."""
    old = on.event
    await on.change(state=EventState.CLOSED)

    assert (await on.hold("A-1")).status is Status.EVENT_NOT_AVAILABLE
    on.event = old
    assert (await on.hold("A-1")).status is Status.STALE_CONFIG


async def test_done_opens_and_closes_the_window(on: Stage) -> None:
    await on.change(sale_end=datetime.now(UTC) - timedelta(seconds=1))
    assert (await on.hold("A-1")).status is Status.EVENT_SALES_CLOSED

    await on.change(sale_end=datetime.now(UTC) + timedelta(hours=1))
    assert (await on.hold("A-1")).status is Status.DONE


async def test_done_keeps_the_counters(on: Stage) -> None:
    await held(on, "A-1")
    await on.backend.block_seats(on.event, seats=pairs(on, "A-2"))

    await on.change(zones=with_capacities(on.event, 10, 50))

    assert await counts(on, 0) == (0, 10, 30, 1, 0, 1)
    assert await counts(on, 1) == (1, 50, 0, 0, 0, 0)


async def test_a_capacity_below_what_is_taken_stops_sales_and_takes_nothing_away(on: Stage) -> None:
    hold = await take_places(on, 10)
    await on.change(zones=with_capacities(on.event, 30, 4))

    async with unchanged(on):
        reply = await take_places(on, 1)

    assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((1, 7),))
    assert hold.hold_id is not None
    sale = await on.backend.confirm_holds(on.event, [hold.hold_id], sale="sale-1", user_id=None)
    assert sale.status is Status.DONE


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "set_event_state", version=b"next")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("version", b""),
        ("version", b"v" * 65),
        ("version", b"two words"),
        ("state", b""),
        ("state", b"sold out"),
        ("opens_ms", b""),
        ("opens_ms", b"-1"),
        ("opens_ms", b"100000000000000"),
        ("closes_ms", b"never"),
        ("closes_ms", b"100000000000000"),
        ("capacities", b"x"),
        ("capacities", pack_pairs([(0, 1), (0, 2)])),
        ("capacities", pack_pairs([(1, 0)])),
        ("capacities", pack_pairs([(0, 31)])),  # More than there are seats.
        ("capacities", pack_pairs([(1, 10), (0, 2**32 - 1)])),
        ("capacities", pack_pairs((zone, 1) for zone in range(1001))),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    right = {"version": b"next"}

    await refused(on, Status.INVALID_REQUEST, "set_event_state", **right | {argument: value})

    assert (await call(on, "set_event_state", **right))["status"] is Status.DONE


async def test_event_not_found(on: Stage) -> None:
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply, event = await on.backend.set_event_state(stranger, changed(stranger, name="Mine now").document)

    assert reply.status is Status.EVENT_NOT_FOUND
    assert event is stranger


async def test_repeated(on: Stage) -> None:
    old = on.event
    new = changed(old, state=EventState.CLOSED)
    first, _ = await on.backend.set_event_state(old, new.document)

    async with unchanged(on):
        again, event = await on.backend.set_event_state(old, new.document)

    assert again.status is Status.REPEATED
    assert again.position == first.position
    assert event.version == new.version


async def test_stale_config(on: Stage) -> None:
    """Two administrators change the same event: the second has to look again first."""
    old = on.event
    await on.change(state=EventState.CLOSED)

    async with unchanged(on):
        reply, event = await on.backend.set_event_state(old, changed(old, name="Another name").document)

    assert reply.status is Status.STALE_CONFIG
    assert event is old


async def test_seat_not_found(on: Stage) -> None:
    """A capacity for a zone that does not exist."""
    capacities = pack_pairs([(1, 10), (7, 10)])

    await refused(on, Status.SEAT_NOT_FOUND, "set_event_state", version=b"next", capacities=capacities)


async def test_arguments_at_their_bounds(on: Stage) -> None:
    longest = {"meta": b"m" * 4096, "version": b"v" * 64, "opens_ms": b"99999999999999", "closes_ms": b"99999999999999"}

    assert (await call(on, "set_event_state", **longest, capacities=pack_pairs([(0, 30)])))["status"] is Status.DONE
