import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.layout import CompiledEvent, compile_event
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.occupancy import Figures, OccupancyCache, occupancies, occupancy
from support.engine import document
from support.outbox import connected

COUNT = "UPDATE zones SET held = held + $3, sold = sold + $4, blocked = blocked + $5 WHERE event_id = $1 AND zone = $2"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Any]:
    async with connected(database_dsn) as opened:
        yield opened


async def saved(connection: Any, **options: Any) -> CompiledEvent:
    """An event with 30 seats and a floor of 50 in the database."""
    event = compile_event(uuid4(), document(**options))
    await save_event(connection, event, 4)
    return event


async def take(
    connection: Any, event: CompiledEvent, zone: int = 0, *, held: int = 0, sold: int = 0, blocked: int = 0
) -> None:
    await connection.execute(COUNT, event.event_id, zone, held, sold, blocked)


async def test_every_zone_is_told_with_its_counters_and_the_event_with_their_sum(connection: Any) -> None:
    event = await saved(connection)
    await take(connection, event, 0, held=3, sold=2, blocked=1)
    await take(connection, event, 1, held=7, sold=2, blocked=5)

    counted = await occupancy(connection, event.organization_id, event.event_id)

    assert [(zone.zone_id, zone.name) for zone in counted.zones] == [("orchestra", "Orchestra"), ("floor", "Floor")]
    assert counted.zones[0].figures == Figures.of(capacity=30, held=3, sold=2, blocked=1, free=24)
    assert counted.zones[1].figures == Figures.of(capacity=50, held=7, sold=2, blocked=5, free=36)
    assert counted.total == Figures(
        capacity=80,
        held=10,
        sold=4,
        blocked=6,
        free=60,
        percent_held=12.5,
        percent_sold=5.0,
        percent_blocked=7.5,
        percent_free=75.0,
    )


async def test_percentages_have_one_decimal() -> None:
    figures = Figures.of(capacity=3, held=1, sold=2, blocked=0, free=0)

    assert (figures.percent_held, figures.percent_sold, figures.percent_free) == (33.3, 66.7, 0.0)


async def test_a_zone_with_more_seats_than_it_may_fill_is_full_at_its_capacity(connection: Any) -> None:
    event = await saved(connection, capacity=4)
    await take(connection, event, held=3)
    figures = (await occupancy(connection, event.organization_id, event.event_id)).zones[0].figures
    assert (figures.capacity, figures.free) == (4, 1)

    # When more is blocked than lies beyond the capacity, the seats themselves are the limit.
    await take(connection, event, blocked=len(event.seats) - 3)
    figures = (await occupancy(connection, event.organization_id, event.event_id)).zones[0].figures
    assert figures.free == 0


async def test_events_are_counted_apart_and_only_for_their_own_organisation(connection: Any) -> None:
    first, second = await saved(connection), await saved(connection, rows=1)
    await take(connection, first, held=1)
    own = [(event.organization_id, event.event_id) for event in (first, second)]
    foreign = (second.organization_id, first.event_id)

    counted = await occupancies(connection, [*own, foreign, own[0]])

    assert [counted[scope].total.held for scope in own] == [1, 0]
    assert [counted[scope].total.capacity for scope in own] == [80, 60]
    assert counted[foreign].zones == ()
    assert counted[foreign].total == Figures.of(capacity=0, held=0, sold=0, blocked=0, free=0)
    assert len(counted) == 3


async def test_the_cache_counts_again_after_ten_seconds(connection: Any) -> None:
    clock = Clock()
    cache = OccupancyCache(clock=clock)
    event = await saved(connection)
    scope = (event.organization_id, event.event_id)
    before = await cache.get(connection, *scope)
    await take(connection, event, held=1)

    clock.now = 9.9
    assert await cache.get(connection, *scope) is before
    clock.now = 10.0
    assert (await cache.get(connection, *scope)).total.held == 1


async def test_the_cache_counts_again_after_a_change(connection: Any) -> None:
    cache = OccupancyCache(clock=Clock())
    event, other = await saved(connection), await saved(connection)
    scope = (event.organization_id, event.event_id)
    await cache.get(connection, *scope)
    untouched = await cache.get(connection, other.organization_id, other.event_id)
    await take(connection, event, sold=1)

    cache.forget(*scope)
    cache.forget(uuid4(), uuid4())

    assert (await cache.get(connection, *scope)).total.sold == 1
    assert await cache.get(connection, other.organization_id, other.event_id) is untouched


async def test_a_count_that_began_before_a_change_is_not_kept(connection: Any) -> None:
    # Given a count that waits behind a lock while the event changes
    cache = OccupancyCache(clock=Clock())
    event = await saved(connection)
    scope = (event.organization_id, event.event_id)
    first: list[Any] = []

    class Slow:
        async def fetch(self, *arguments: Any) -> Any:
            rows = await connection.fetch(*arguments)
            if not first:
                first.append(rows)
                await take(connection, event, held=1)
                cache.forget(*scope)
            return rows

    # When it is asked for twice
    counts = [(await cache.get(Slow(), *scope)).total.held for _ in range(2)]

    # Then the second sees the change
    assert counts == [0, 1]


async def test_callers_at_once_share_a_count(connection: Any) -> None:
    cache = OccupancyCache(clock=Clock())
    event = await saved(connection)

    # The connection refuses two queries at once, so this fails unless there is one.
    found = await asyncio.gather(*(cache.get(connection, event.organization_id, event.event_id) for _ in range(10)))

    assert all(each is found[0] for each in found)


async def test_a_full_cache_lets_go_of_what_is_too_old(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.persistence.occupancy.CACHED_EVENTS_MAX", 2)
    clock = Clock()
    cache = OccupancyCache(clock=clock)
    event = await saved(connection)
    counted = await occupancy(connection, event.organization_id, event.event_id)
    for number in range(4):
        clock.now = number * 6.0
        cache.put(msgspec.structs.replace(counted, event_id=uuid4()))

    assert len(cache._entries) == 2
