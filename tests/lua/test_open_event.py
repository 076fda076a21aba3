"""open_event: a loaded event goes on sale, once and whole."""

from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.layout import EventState, ZoneDocument, ZoneType, compile_event
from holdfast.engine.records import pack_zone_specs, unpack_zone_specs
from holdfast.engine.status import Status
from support.drawn import drawn_event
from support.engine import UNLIMITED, Stage, document
from support.scripts import audited, call, contents, entries, refused, take_places, unchanged


@pytest.fixture
def new(on: Stage) -> Stage:
    """The same server, and an event that is not open yet."""
    return Stage(on.redis, on.backend, compile_event(uuid4(), document(blocked_seat_ids=frozenset({"A-2", "C-10"}))))


async def load(new: Stage) -> None:
    assert (await call(new, "load_event", block=new.event.map))["status"] is Status.DONE


async def test_done(server_url: str) -> None:
    sale_start, sale_end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2066, 1, 1, tzinfo=UTC)
    doc = document(sale_start=sale_start, sale_end=sale_end, blocked_seat_ids=frozenset({"A-2"}), capacity=25)
    async with audited(server_url, doc) as on:
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)
        assert (reading.version, reading.state) == (on.event.version, "live")
        assert (reading.opens_ms, reading.closes_ms) == (on.event.opens_ms, on.event.closes_ms)
        assert reading.zones == ((0, 25, 30, 0, 0, 1), (1, 50, 0, 0, 0, 0))
        assert reading.map == on.event.map

        (entry,) = await entries(on)
        assert (entry.operation, entry.hold_ids, entry.seq) == ("open", (), 1)
        words, _, zones = entry.body.partition(b"\n")
        assert words.decode().split() == [
            on.event.version,
            "live",
            str(on.event.opens_ms),
            str(on.event.closes_ms),
            str(len(on.event.map)),
        ]
        assert unpack_zone_specs(zones) == ((25, 0, 32), (50, 33, 0))

        # The reaper finds the event, the owners have their place, and nothing is left of the loading.
        assert await on.redis.smembers(on.keys.key("events")) == {on.keys.scope}
        assert await on.redis.strlen(on.keys.key("owners")) == 16 * len(on.event.map)
        assert not await on.redis.exists(on.keys.key("loading"))


async def test_done_with_several_categories_of_seats(server_url: str) -> None:
    async with audited(server_url, drawn_event(["i.h|r.", "rr"], UNLIMITED)) as on:
        assert await on.redis.get(on.keys.key("map")) == b"..b|..|..|"
        assert await on.redis.get(on.keys.key("kinds")) == b"i..|r.|rr|"
        assert not await on.redis.exists(on.keys.key("loading"))


@pytest.mark.parametrize("loaded", [b"r.|..|", b"..|.b|", b"i.|i.|"])
async def test_invalid_request_where_the_map_and_the_categories_are_mixed_up(on: Stage, loaded: bytes) -> None:
    doc = drawn_event([".."], UNLIMITED)
    new = Stage(on.redis, on.backend, compile_event(uuid4(), doc))
    assert (await call(new, "load_event", block=loaded))["status"] is Status.DONE

    await refused(new, Status.INVALID_REQUEST, "open_event")


async def test_done_for_general_admission_only(server_url: str) -> None:
    zones = (
        ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 100),
        ZoneDocument("ring", ZoneType.GA_SEATED, "Ring", 20),
    )
    async with audited(server_url, msgspec.structs.replace(document(), zones=zones)) as on:
        assert (await take_places(on, 20)).status is Status.DONE
        async with unchanged(on):
            assert (await take_places(on, 21)).status is Status.BLOCK_AT_CAPACITY


async def test_done_beside_another_event_of_the_shard(new: Stage, on: Stage) -> None:
    while new.keys.shard != on.keys.shard:
        new.event = compile_event(uuid4(), msgspec.structs.replace(new.event.document, event_id=uuid4()))

    assert (await new.backend.open_event(new.event)).status is Status.DONE

    assert [entry.event_id for entry in await entries(on)] == [on.event.event_id, new.event.event_id]
    assert await on.redis.smembers(on.keys.key("events")) == {on.keys.scope, new.keys.scope}


async def test_fenced(new: Stage) -> None:
    await load(new)
    await new.redis.delete(new.keys.key("open"))

    await refused(new, Status.FENCED, "open_event")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("version", b""),
        ("version", b"v" * 65),
        ("version", b"two words"),
        ("version", b"two\nlines"),
        ("state", b""),
        ("state", b"open"),
        ("state", b"LIVE"),
        ("opens_ms", b""),
        ("opens_ms", b"-1"),
        ("opens_ms", b"tomorrow"),
        ("opens_ms", b"100000000000000"),
        ("closes_ms", b""),
        ("closes_ms", b"1.5"),
        ("closes_ms", b"100000000000000"),
        ("length", b""),
        ("length", b"-1"),
        ("length", b"16777216"),
        ("zones", b""),
        ("zones", b"x" * 11),
        ("zones", bytes(12_012)),
        ("zones", pack_zone_specs([(0, 0, 32)])),  # No capacity.
        ("zones", pack_zone_specs([(0, 0, 0)])),
        ("zones", pack_zone_specs([(31, 0, 32)])),  # More than the 30 seats in 32 bytes.
        ("zones", pack_zone_specs([(2, 30, 4)])),  # Beyond the map.
        ("zones", pack_zone_specs([(2, 2**32 - 1, 2)])),
    ],
)
async def test_invalid_request(new: Stage, argument: str, value: bytes) -> None:
    await load(new)

    await refused(new, Status.INVALID_REQUEST, "open_event", **{argument: value})

    assert (await call(new, "open_event"))["status"] is Status.DONE


async def test_repeated(on: Stage) -> None:
    async with unchanged(on):
        reply = await on.backend.open_event(on.event)

    assert reply.status is Status.REPEATED
    assert reply.position.seq == 1


async def test_repeated_keeps_what_has_happened_since(on: Stage) -> None:
    await on.hold("A-1")
    before = await contents(on)

    assert (await on.backend.open_event(on.event)).status is Status.REPEATED

    assert await contents(on) == before


async def test_event_exists(on: Stage) -> None:
    """Another version of an open event comes by set_event_state, which knows what was there before."""
    other = compile_event(on.event.organization_id, msgspec.structs.replace(on.event.document, state=EventState.CLOSED))

    async with unchanged(on):
        reply = await on.backend.open_event(other)

    assert reply.status is Status.EVENT_EXISTS
    assert reply.position.seq == 0


async def test_load_incomplete(new: Stage) -> None:
    await refused(new, Status.LOAD_INCOMPLETE, "open_event")

    await call(new, "load_event", block=new.event.map[:-1])
    await refused(new, Status.LOAD_INCOMPLETE, "open_event")

    await call(new, "load_event", offset=b"%d" % (len(new.event.map) - 1), block=new.event.map[-1:] + b".")
    await refused(new, Status.LOAD_INCOMPLETE, "open_event")

    await load(new)
    assert (await call(new, "open_event"))["status"] is Status.DONE


async def test_a_thousand_zones(server_url: str) -> None:
    zones = tuple(ZoneDocument(f"zone-{i}", ZoneType.GA_STANDING, "Zone", 10) for i in range(1000))
    async with audited(server_url, msgspec.structs.replace(document(), zones=zones)) as on:
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=False)

        assert [zone.zone for zone in reading.zones] == list(range(1000))
