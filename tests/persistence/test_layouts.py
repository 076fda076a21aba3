"""Venues, versions of layouts, policies and members in Postgres, and events made from them."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from holdfast.engine.layout import SeatDocument, ZoneDocument, ZoneType, compile_event
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.plan import EventPlan, LayoutDocument, LayoutOverrides, LayoutReference
from holdfast.engine.policy import Policy, PolicyChanges, PolicyError, SeatingPolicy
from holdfast.persistence.catalogue import CatalogueError, Missing, save_event
from holdfast.persistence.layouts import (
    Venue,
    create_venue,
    end_membership,
    list_layouts,
    list_venues,
    load_layout,
    load_policy,
    remember_plan,
    resolve_plan,
    save_layout,
    save_policy,
    set_tier,
    tiers_of,
)
from holdfast.persistence.pool import Connection, connect
from support.engine import SHARDS

OURS, THEIRS = uuid4(), uuid4()


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await connect(database_dsn, name="test", statement_timeout_ms=None)
    yield connection
    await connection.close()


@pytest.fixture
async def hall(connection: Connection) -> LayoutDocument:
    venue = Venue(uuid4(), "Hall", "1 Main Street")
    await create_venue(connection, OURS, venue)
    seats = tuple(SeatDocument(f"A-{number}", "A", number) for number in range(1, 5))
    zones = (
        ZoneDocument("stalls", ZoneType.RESERVED_SEATING, "Stalls", 4, seats),
        ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 100),
    )
    return LayoutDocument(venue.venue_id, "Main Hall", zones)


def renamed(layout: LayoutDocument, name: str) -> LayoutDocument:
    return msgspec.structs.replace(layout, name=name)


def plan_on(layout_id: UUID, version: int = 1, **members: object) -> EventPlan:
    return EventPlan(uuid4(), "Gala", LayoutReference(layout_id, version), **members)  # type: ignore[arg-type]


async def test_a_venue_comes_back_to_its_own_organisation_only(connection: Connection) -> None:
    venue = Venue(uuid4(), "Hall", "1 Main Street")
    await create_venue(connection, OURS, venue)
    await create_venue(connection, OURS, venue)

    assert venue in await list_venues(connection, OURS)
    assert await list_venues(connection, THEIRS, venue.venue_id) == ()
    with pytest.raises(Missing, match="there is no venue"):
        await create_venue(connection, THEIRS, venue)
    with pytest.raises(CatalogueError, match="is taken"):
        await create_venue(connection, OURS, Venue(venue.venue_id, "Other hall"))


async def test_a_changed_layout_is_a_new_version_and_the_old_one_stays(
    connection: Connection, hall: LayoutDocument
) -> None:
    layout_id = uuid4()

    assert await save_layout(connection, OURS, layout_id, hall) == 1
    assert await save_layout(connection, OURS, layout_id, hall) == 1
    assert await save_layout(connection, OURS, layout_id, renamed(hall, "Rebuilt")) == 2

    assert await load_layout(connection, OURS, layout_id, 1) == (1, hall)
    assert await load_layout(connection, OURS, layout_id) == (2, renamed(hall, "Rebuilt"))
    assert await load_layout(connection, THEIRS, layout_id) is None


async def test_concurrent_changes_get_versions_of_their_own(hall: LayoutDocument, database_dsn: str) -> None:
    layout_id = uuid4()

    async def save(name: str) -> int:
        own = await connect(database_dsn, name="test", statement_timeout_ms=None)
        try:
            return await save_layout(own, OURS, layout_id, renamed(hall, name))
        finally:
            await own.close()

    versions = await asyncio.gather(*(save(f"Plan {number}") for number in range(8)))

    assert sorted(versions) == list(range(1, 9))


async def test_not_even_an_operator_changes_a_version(connection: Connection, hall: LayoutDocument) -> None:
    layout_id = uuid4()
    await save_layout(connection, OURS, layout_id, hall)

    with pytest.raises(asyncpg.RaiseError, match="never changes"):
        await connection.execute("UPDATE layouts SET name = 'Other' WHERE id = $1", layout_id)
    with pytest.raises(asyncpg.RaiseError, match="never changes"):
        await connection.execute("DELETE FROM layouts WHERE id = $1", layout_id)


async def test_a_bad_layout_is_refused_and_not_stored(connection: Connection, hall: LayoutDocument) -> None:
    layout_id = uuid4()
    broken = msgspec.structs.replace(hall, zones=(hall.zones[0], hall.zones[0]))
    homeless = msgspec.structs.replace(hall, venue_id=uuid4())

    with pytest.raises(LayoutError, match=r"zones\[1\]\.zone_id"):
        await save_layout(connection, OURS, layout_id, broken)
    with pytest.raises(CatalogueError, match="venue_id: there is no venue"):
        await save_layout(connection, OURS, layout_id, homeless)
    with pytest.raises(CatalogueError, match="venue_id: there is no venue"):
        await save_layout(connection, THEIRS, layout_id, hall)

    assert await load_layout(connection, OURS, layout_id) is None


async def test_a_layout_of_another_organisation_does_not_exist(connection: Connection, hall: LayoutDocument) -> None:
    layout_id = uuid4()
    await save_layout(connection, OURS, layout_id, hall)

    with pytest.raises(Missing, match="There is no layout"):
        await save_layout(connection, THEIRS, layout_id, hall)


async def test_an_event_is_made_from_layout_and_policy(connection: Connection, hall: LayoutDocument) -> None:
    layout_id = uuid4()
    await save_layout(connection, OURS, layout_id, hall)
    stored = SeatingPolicy(Policy(max_seats_per_booking=6), frozenset({"max_seats_per_booking"}))
    await save_policy(connection, OURS, stored)
    plan = plan_on(layout_id, overrides=LayoutOverrides(blocked_seat_ids=frozenset({"A-1"})))

    document = await resolve_plan(connection, OURS, plan)
    await save_event(connection, compile_event(OURS, document), SHARDS)
    await remember_plan(connection, OURS, plan)

    assert document.zones == hall.zones
    assert document.policy.max_seats_per_booking == 6
    assert document.blocked_seat_ids == {"A-1"}
    with pytest.raises(PolicyError, match="max_seats_per_booking"):
        await resolve_plan(
            connection, OURS, plan_on(layout_id, seating_overrides=PolicyChanges(max_seats_per_booking=9))
        )


async def test_layouts_say_how_many_events_on_sale_use_them(connection: Connection, hall: LayoutDocument) -> None:
    owner = uuid4()
    venue = Venue(uuid4(), "Other hall")
    await create_venue(connection, owner, venue)
    layout_id = uuid4()
    await save_layout(connection, owner, layout_id, msgspec.structs.replace(hall, venue_id=venue.venue_id))
    for state in ("draft", "live", "published"):
        plan = msgspec.structs.replace(plan_on(layout_id), state=state)
        await save_event(connection, compile_event(owner, await resolve_plan(connection, owner, plan)), SHARDS)
        await remember_plan(connection, owner, plan)

    (version,) = await list_layouts(connection, owner)

    assert (version.layout_id, version.version, version.total_capacity) == (layout_id, 1, 104)
    assert version.events_on_sale == 2


async def test_a_plan_on_a_layout_that_is_not_there_is_refused(connection: Connection, hall: LayoutDocument) -> None:
    layout_id = uuid4()
    await save_layout(connection, OURS, layout_id, hall)

    for owner, version in ((OURS, 2), (THEIRS, 1)):
        with pytest.raises(Missing, match=f"layout: there is no version {version}"):
            await resolve_plan(connection, owner, plan_on(layout_id, version))


async def test_an_organisation_without_a_policy_has_none(connection: Connection) -> None:
    assert await load_policy(connection, uuid4()) is None


async def test_members_are_known_by_their_tier(connection: Connection) -> None:
    anna, berta = uuid4(), uuid4()
    await set_tier(connection, OURS, anna, "silver")
    await set_tier(connection, OURS, anna, "gold")
    await set_tier(connection, THEIRS, berta, "gold")

    assert await tiers_of(connection, OURS, [anna, berta]) == {anna: "gold"}
    assert await end_membership(connection, OURS, anna)
    assert not await end_membership(connection, OURS, anna)
    assert await tiers_of(connection, OURS, [anna, berta]) == {}
