"""Whatever is allocated, named, released and sold, in whatever order: groups sit together and leave nobody alone while
that is possible, and no zone ever has more than its capacity."""

import asyncio
from contextlib import AsyncExitStack
from uuid import UUID

import pytest
from conformance.halls import Hall, redis_hall, row_lock_hall, somebody
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.engine.choosing import Wish, choose_seats, orphans_left
from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from support.drawn import drawn_event

HALL = ["..........|........|............", ".......|......"]
STEPS = st.lists(
    st.tuples(st.just("allocate"), st.integers(1, 6), st.sampled_from([(0,), (1,), (0, 1), (1, 0)]))
    | st.tuples(st.sampled_from(["release", "sell"]), st.integers(0, 20), st.just(())),
    min_size=8,
    max_size=30,
)
FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
Steps = list[tuple[str, int, tuple[int, ...]]]


@pytest.mark.parametrize("strict", [True, False])
@FEW
@given(steps=STEPS)
def test_no_group_is_split_or_leaves_an_orphan_without_need(redis_url: str, strict: bool, steps: Steps) -> None:
    asyncio.run(_follow(redis_url, "", strict, steps))


@settings(FEW, max_examples=8)
@given(steps=STEPS, strict=st.booleans())
def test_the_same_under_row_locks(database_dsn: str, strict: bool, steps: Steps) -> None:
    asyncio.run(_follow("", database_dsn, strict, steps))


async def _follow(redis_url: str, dsn: str, strict: bool, steps: Steps) -> None:
    event = drawn_event(HALL, Policy(rate_limit_seats=0, orphan_avoidance_strict=strict))
    async with AsyncExitStack() as stack:
        opening = redis_hall(redis_url, event) if redis_url else row_lock_hall(dsn, event)
        hall = await stack.enter_async_context(opening)
        live: list[UUID] = []
        for step, number, zones in steps:
            if step == "allocate":
                if given_id := await _allocate(hall, number, zones, strict=strict):
                    live.append(given_id)
            elif live:
                hold_id = live.pop(number % len(live))
                if step == "release":
                    ended = await hall.backend.release_holds(
                        hall.event, [hold_id], user_id=None, reason="admin_override"
                    )
                else:
                    ended = await hall.backend.confirm_holds(hall.event, [hold_id], sale="sale", user_id=None)
                assert ended.status is Status.DONE


async def _allocate(hall: Hall, count: int, zones: tuple[int, ...], *, strict: bool) -> UUID | None:
    """Ask for seats, and hold the answer against the map as it was before."""
    ids = (hall.event.organization_id, hall.event.event_id)
    before = await hall.backend.read_event(*ids, want_map=True)
    stretches = [hall.event.zones[zone] for zone in zones]
    rows = [before.map[zone.first : zone.last + 1] for zone in stretches]
    clean = [row for row in rows if any(_is_clean(row, start, count) for start in range(len(row)))]

    reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=zones, count=count)

    after = await hall.backend.read_event(*ids, want_map=False)
    assert all(zone.held + zone.sold <= zone.capacity for zone in after.zones)
    if reply.status is not Status.DONE:
        assert reply.status is Status.NO_AVAILABLE_SEATS
        assert choose_seats(rows, Wish(count, strict)) is None
        return None
    ordinals = [seat.value for seat in reply.seats]
    assert all(before.map[ordinal] == ord(".") for ordinal in ordinals)
    assert len(set(ordinals)) == count
    if clean:
        assert ordinals == list(range(ordinals[0], ordinals[0] + count))
        assert orphans_left(before.map, ordinals) == ()
    return reply.hold_id


def _is_clean(row: bytes, start: int, count: int) -> bool:
    """Whether so many seats from a place on are free, and leave nobody alone. Found by trying, not by the rules."""
    places = range(start, start + count)
    return row[start : start + count] == b"." * count and not orphans_left(row, places)
