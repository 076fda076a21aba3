"""Saving events in Postgres and reading them back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.keys import shard_of
from holdfast.engine.layout import (
    CompiledEvent,
    Coordinates,
    EventDocument,
    EventState,
    Policy,
    SeatCategory,
    SeatDocument,
    ZoneDocument,
    ZoneType,
    compile_event,
)
from holdfast.engine.records import ZoneCounts
from holdfast.persistence.catalogue import (
    CatalogueError,
    SaveResult,
    changing,
    is_as_new,
    list_events,
    load_event,
    organization_of,
    read_counts,
    save_event,
)
from holdfast.persistence.pool import Connection, connect
from support.engine import SHARDS, document, seats

ORGANIZATION = uuid4()


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await connect(database_dsn, name="test", statement_timeout_ms=None)
    yield connection
    await connection.close()


def event(doc: EventDocument | None = None, organization_id: UUID = ORGANIZATION) -> CompiledEvent:
    return compile_event(organization_id, doc or document())


def changed(saved: CompiledEvent, **changes: Any) -> CompiledEvent:
    return compile_event(saved.organization_id, msgspec.structs.replace(saved.document, **changes))


def with_zone(saved: CompiledEvent, index: int, **changes: Any) -> CompiledEvent:
    zones = list(saved.document.zones)
    zones[index] = msgspec.structs.replace(zones[index], **changes)
    return changed(saved, zones=tuple(zones))


async def test_an_event_comes_back_as_it_was_saved(connection: Connection) -> None:
    seated = (
        SeatDocument("A-1", "A", 1, SeatCategory.WHEELCHAIR, Coordinates(0.1, -2.5e10)),
        SeatDocument("A-2", "A", 2, SeatCategory.COMPANION),
        SeatDocument("Ω", "Ärger", 0),
    )
    whole = EventDocument(
        event_id=uuid4(),
        name="Gala “Ünder” the stars",
        zones=(
            ZoneDocument("z", ZoneType.VIP_RESERVED, "Lounge", 2, seated),
            ZoneDocument("f", ZoneType.GA_SEATED, "Floor", 7),
        ),
        state=EventState.PUBLISHED,
        sale_start=datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC),
        sale_end=datetime(2026, 6, 1, tzinfo=UTC),
        blocked_seat_ids=frozenset({"A-2", "Ω"}),
        policy=Policy(max_holds_per_user=4),
    )
    saved = event(whole)

    assert await save_event(connection, saved, SHARDS) is SaveResult.CREATED

    assert await load_event(connection, ORGANIZATION, saved.event_id) == saved


async def test_the_rows_are_those_of_the_document(connection: Connection) -> None:
    saved = event(document(rows=2, per_row=2, blocked_seat_ids=frozenset({"B-1"})))
    await save_event(connection, saved, SHARDS)

    rows = await connection.fetch(
        "SELECT ordinal, seat_id, zone, row, number, status, version FROM seats ORDER BY ordinal"
    )
    assert [tuple(row) for row in rows] == [
        (0, "A-1", 0, "A", 1, "available", 1),
        (1, "A-2", 0, "A", 2, "available", 1),
        (3, "B-1", 0, "B", 1, "blocked", 1),
        (4, "B-2", 0, "B", 2, "available", 1),
    ]
    assert await read_counts(connection, saved) == (ZoneCounts(0, 4, 4, 0, 0, 1), ZoneCounts(1, 50, 0, 0, 0, 0))
    stored = await connection.fetchrow("SELECT shard, config_version, state FROM events")
    assert tuple(stored) == (shard_of(saved.event_id, SHARDS), saved.version, "live")


async def test_the_same_event_again_changes_nothing(connection: Connection) -> None:
    saved = event()
    await save_event(connection, saved, SHARDS)
    before = await connection.fetchrow("SELECT xmin, updated_at FROM events")

    assert await save_event(connection, saved, SHARDS) is SaveResult.UNCHANGED

    assert await connection.fetchrow("SELECT xmin, updated_at FROM events") == before


async def test_many_at_once_save_it_once(database_dsn: str) -> None:
    saved = event()
    connections = [await connect(database_dsn, name="test") for _ in range(4)]
    try:
        results = await asyncio.gather(*(save_event(each, saved, SHARDS) for each in connections))
    finally:
        for each in connections:
            await each.close()

    assert sorted(results) == [SaveResult.CREATED] + [SaveResult.UNCHANGED] * 3


async def test_what_may_change_is_taken_over(connection: Connection) -> None:
    saved = event(document(rows=2, per_row=2))
    await save_event(connection, saved, SHARDS)
    await connection.execute("UPDATE seats SET status = 'sold' WHERE ordinal = 0")
    later = changed(
        with_zone(with_zone(saved, 0, capacity=3, name="Stalls"), 1, capacity=80),
        state=EventState.CLOSED,
        sale_end=datetime(2026, 6, 1, tzinfo=UTC),
        name="Renamed",
        policy=Policy(max_seats_per_booking=2),
    )

    assert await save_event(connection, later, SHARDS) is SaveResult.CHANGED

    assert await load_event(connection, ORGANIZATION, saved.event_id) == later
    (summary,) = await list_events(connection, ORGANIZATION)
    assert (summary.name, summary.state, summary.config_version) == ("Renamed", "closed", later.version)
    assert summary.sale_end == later.document.sale_end
    assert [zone.capacity for zone in await read_counts(connection, later)] == [3, 80]
    assert await connection.fetchval("SELECT status FROM seats WHERE ordinal = 0") == "sold"
    assert await connection.fetchval("SELECT name FROM zones WHERE zone = 0") == "Stalls"


async def test_other_seats_are_refused_and_nothing_is_changed(connection: Connection) -> None:
    saved = event(document(rows=2, per_row=2))
    await save_event(connection, saved, SHARDS)
    attempts = {
        "zones[0].seats": with_zone(saved, 0, seats=seats(2, 3)),
        "zones": with_zone(saved, 1, zone_id="balcony"),
        "blocked_seat_ids": changed(saved, blocked_seat_ids=frozenset({"A-1"})),
    }
    for place, attempt in attempts.items():
        with pytest.raises(CatalogueError) as caught:
            await save_event(connection, attempt, SHARDS)
        assert str(caught.value).startswith(f"The event {saved.event_id} has other {place}: ")

    assert await load_event(connection, ORGANIZATION, saved.event_id) == saved


async def test_an_id_of_another_organisation_is_refused(connection: Connection) -> None:
    saved = event()
    await save_event(connection, saved, SHARDS)

    with pytest.raises(CatalogueError, match="belongs to another organisation"):
        await save_event(connection, event(saved.document, uuid4()), SHARDS)

    assert await organization_of(connection, saved.event_id) == ORGANIZATION


async def test_another_number_of_shards_is_refused(connection: Connection) -> None:
    saved = event()
    await save_event(connection, saved, SHARDS)
    others = next(
        shards for shards in range(1, 100) if shard_of(saved.event_id, shards) != shard_of(saved.event_id, SHARDS)
    )

    with pytest.raises(CatalogueError, match="another number of shards"):
        await save_event(connection, saved, others)


@pytest.mark.parametrize("place", ["name", "seat"])
async def test_a_character_that_postgres_cannot_keep_is_one_sentence(connection: Connection, place: str) -> None:
    good = event()
    seat = SeatDocument("A\0", "A", 1)
    bad = changed(good, name="a\0b") if place == "name" else with_zone(good, 0, seats=(seat,), capacity=1)

    with pytest.raises(CatalogueError, match="contains the character NUL"):
        await save_event(connection, bad, SHARDS)

    assert await list_events(connection, None) == ()


async def test_only_the_organisation_finds_its_event(connection: Connection) -> None:
    ours, theirs = event(), event(organization_id=uuid4())
    for each in (ours, theirs):
        await save_event(connection, each, SHARDS)

    assert await load_event(connection, theirs.organization_id, ours.event_id) is None
    assert [each.event_id for each in await list_events(connection, ORGANIZATION)] == [ours.event_id]
    assert [each.event_id for each in await list_events(connection, None)] == [ours.event_id, theirs.event_id]
    assert await organization_of(connection, uuid4()) is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE zones SET held = 1 WHERE zone = 1",
        "UPDATE zones SET sold = 1 WHERE zone = 1",
        "UPDATE zones SET blocked = 1 WHERE zone = 1",
        "UPDATE seats SET status = 'sold' WHERE ordinal = 0",
        "UPDATE seats SET status = 'blocked' WHERE ordinal = 1",
    ],
)
async def test_an_event_in_use_is_not_as_new(connection: Connection, change: str) -> None:
    saved = event(document(blocked_seat_ids=frozenset({"A-1"})))
    await save_event(connection, saved, SHARDS)
    assert await is_as_new(connection, saved)

    await connection.execute(change)

    assert not await is_as_new(connection, saved)


async def test_seats_that_were_unblocked_are_not_as_new(connection: Connection) -> None:
    saved = event(document(blocked_seat_ids=frozenset({"A-1"})))
    await save_event(connection, saved, SHARDS)

    await connection.execute("UPDATE seats SET status = 'available'")
    await connection.execute("UPDATE zones SET blocked = 0")

    assert not await is_as_new(connection, saved)


async def test_changes_of_one_event_wait_for_each_other_and_those_of_another_do_not(database_dsn: str) -> None:
    first, second = [await connect(database_dsn, name="test") for _ in range(2)]
    one, another = uuid4(), uuid4()
    try:
        async with changing(first, one):
            await change_nothing(second, another)
            waiting = asyncio.create_task(change_nothing(second, one))
            while not await first.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
                assert not waiting.done()
        await waiting
    finally:
        await first.close()
        await second.close()


async def change_nothing(connection: Connection, event_id: UUID) -> None:
    async with changing(connection, event_id):
        pass


async def test_a_hundred_thousand_seats(connection: Connection) -> None:
    saved = event(document(rows=1000, per_row=100))

    assert await save_event(connection, saved, SHARDS) is SaveResult.CREATED

    assert await connection.fetchval("SELECT count(*) FROM seats") == 100_000
    assert await load_event(connection, ORGANIZATION, saved.event_id) == saved
