"""What a search for neighbours has ruled out never hides seats that have come free since."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.engine.choosing import Wish, choose_seats
from holdfast.engine.layout import EventDocument, SeatCategory, SeatDocument, ZoneDocument, ZoneType, compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.search_digits import search_digits
from holdfast.engine.status import Status
from support.drawn import drawn_event, without_others
from support.engine import Stage, document, seats
from support.scripts import (
    SEARCH_BLOCK_BYTES,
    allocate,
    audit,
    audited,
    held,
    hidden_runs,
    pairs,
    reap,
    release,
    unchanged,
)

ENTRIES_PER_LOOK = 128
PER_ROW = 1_000
LENIENT = Policy(rate_limit_seats=0)
CATEGORIES = (SeatCategory.STANDARD, SeatCategory.RESTRICTED_VIEW, SeatCategory.AISLE)
ROWS = {"left": 8, "right": 6}
# Places around the ends of blocks, of rows and of zones, and one in the middle of a block.
CORNERS = (0, 997, 2000, 4091, 7998, 8008, 8187, 12283, 13000)
PLACES = tuple(place for corner in CORNERS for place in range(corner, corner + 10))


class Step(NamedTuple):
    """One thing that happens: to the seat or the hold that `place` points at, and how `many` of them."""

    what: str
    place: int
    many: int
    categories: frozenset[SeatCategory] = frozenset()


STEPS = st.builds(
    Step,
    st.sampled_from(["allocate"] * 4 + ["hold", "release", "release", "lapse", "reap", "block", "unblock", "unblock"]),
    st.integers(0, len(PLACES) - 1),
    st.integers(1, 10),
    st.just(frozenset[SeatCategory]()) | st.frozensets(st.sampled_from(CATEGORIES)),
)


def arena() -> EventDocument:
    """Two zones over four blocks, in which only the places above are not blocked."""
    zones = tuple(
        ZoneDocument(name, ZoneType.RESERVED_SEATING, name, rows * PER_ROW, tuple(_mixed(rows, name)))
        for name, rows in ROWS.items()
    )
    ids = [seat.seat_id for zone in zones for seat in zone.seats]
    free = {place - place // (PER_ROW + 1) for place in PLACES}
    blocked = frozenset(seat_id for at, seat_id in enumerate(ids) if at not in free)
    return msgspec.structs.replace(document(), zones=zones, blocked_seat_ids=blocked)


def _mixed(rows: int, name: str) -> Iterator[SeatDocument]:
    """Rows in which seats of three categories alternate, some of them alone and some together."""
    for number, seat in enumerate(seats(rows, PER_ROW, f"{name}-")):
        yield msgspec.structs.replace(seat, category=CATEGORIES[number * number // 7 % 3])


# Shrinking a workload takes minutes: what failed is printed as it was.
@settings(
    max_examples=16,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(steps=st.lists(STEPS, min_size=30, max_size=80))
def test_no_run_is_ever_hidden(server_url: str, steps: Sequence[Step]) -> None:
    asyncio.run(_play(server_url, steps))


async def test_what_is_ruled_out_is_noted_and_lifted(server_url: str) -> None:
    async with audited(server_url, arena()) as on:
        taken = await allocate(on, 8)
        assert taken.hold_id is not None
        while (await allocate(on, 8)).seats[0].value < SEARCH_BLOCK_BYTES:
            assert await _digits(on) == b""
        assert await _digits(on) == b"78"

        await release(on, taken.hold_id)

        assert await _digits(on) == b"88"
        assert (await allocate(on, 8)).seats == taken.seats


@pytest.mark.parametrize("when", ["before the event opens", "afterwards"])
async def test_what_is_blocked_is_noted(server_url: str, when: str) -> None:
    """All but a few seats, two of them at the end of a block."""
    doc, compiled = arena(), compile_event(uuid4(), arena())
    spare = {name for name, seat in compiled.seats.items() if seat.value in set(PLACES) - {2000, 4094, 4095, 4096}}
    if when == "before the event opens":
        doc = msgspec.structs.replace(doc, blocked_seat_ids=doc.blocked_seat_ids | spare)
    async with audited(server_url, doc) as on:
        if when == "afterwards":
            blocked = await on.backend.block_seats(on.event, seats=pairs(on, *spare))
            assert blocked.status is Status.DONE

        assert await _digits(on) == b"3100"


async def test_every_so_often_a_hold_notes_what_is_left_of_a_block(server_url: str) -> None:
    async with audited(server_url, arena()) as on:
        # Given an event in which nobody has searched, and of which every second seat was held by name,
        free = [seat_id for seat_id, pair in on.event.seats.items() if pair.value in PLACES]
        for seat_id in free[: len(free) // 4 * 4 : 2]:
            assert (await on.hold(seat_id)).status is Status.DONE
        assert await _digits(on) == b""

        # when holds go on, then one block after the other gets the digit of its longest run.
        looked_at: list[int] = []
        while len(looked_at) < 4:
            reply = await on.hold(free[-1])
            assert reply.hold_id is not None
            if reply.position.seq % ENTRIES_PER_LOOK == 0:
                block = reply.position.seq // ENTRIES_PER_LOOK % 4
                exact = search_digits(await on.redis.get(on.keys.key("map")) or b"")
                assert (await _digits(on))[block] == exact[block] < ord("8")
                looked_at.append(block)
            await release(on, reply.hold_id)
        assert looked_at == [1, 2, 3, 0]


@pytest.mark.parametrize("how", ["released", "unblocked", "lapsed"])
async def test_what_is_ruled_out_of_a_category_is_noted_and_lifted(server_url: str, how: str) -> None:
    # Given two seats at the aisle on either side of the end of a block, taken, and everything else free,
    doc = drawn_event(["." * 4095 + "ii" + "." * 4000], LENIENT)
    aisle = {SeatCategory.AISLE}
    async with audited(server_url, doc) as on:
        both = pairs(on, "0-1-4096", "0-1-4097")
        if how == "unblocked":
            await on.backend.block_seats(on.event, seats=both)
        else:
            taken = await held(on, "0-1-4096", "0-1-4097")
        # when somebody asks for them, then it is noted that there are none of them,
        assert (await allocate(on, 2, categories=aisle)).status is Status.NO_AVAILABLE_SEATS
        assert await _kind_digits(on) == b"\ni:00"
        async with unchanged(on):
            assert (await allocate(on, 1, categories=aisle)).status is Status.NO_AVAILABLE_SEATS

        # until they come free.
        if how == "unblocked":
            await on.backend.unblock_seats(on.event, seats=both)
        elif how == "released":
            await release(on, taken)
        else:
            await on.lapse(taken)

        assert (await allocate(on, 2, categories=aisle)).seats == both


async def test_a_seat_that_comes_free_may_be_the_second_of_a_block_before(server_url: str) -> None:
    async with audited(server_url, drawn_event(["." * 4095 + "ii" + "." * 4000], LENIENT)) as on:
        second = await held(on, "0-1-4097")
        assert (await allocate(on, 2, categories={SeatCategory.AISLE})).status is Status.NO_AVAILABLE_SEATS
        assert await _kind_digits(on) == b"\ni:10"

        await release(on, second)

        assert (await allocate(on, 2, categories={SeatCategory.AISLE})).status is Status.DONE


async def _play(url: str, steps: Sequence[Step]) -> None:
    async with audited(url, arena()) as on:
        ordinals = {pair.value: seat_id for seat_id, pair in on.event.seats.items()}
        live: list[UUID] = []
        for step in steps:
            near = [ordinals[place] for place in PLACES[step.place : step.place + step.many] if place in ordinals]
            if step.what == "allocate":
                await _allocate_best(on, step, live)
            elif step.what == "hold":
                reply = await on.hold(*near)
                live += [reply.hold_id] if reply.status is Status.DONE and reply.hold_id else []
            elif step.what == "block":
                await on.backend.block_seats(on.event, seats=pairs(on, *near))
            elif step.what == "unblock":
                await on.backend.unblock_seats(on.event, seats=pairs(on, *near))
            elif step.what == "reap":
                await reap(on, limit=step.many)
            elif live:
                hold_id = live.pop(step.place % len(live))
                if step.what == "release":
                    await on.backend.release_holds(on.event, [hold_id], user_id=None, reason="admin_override")
                elif await on.redis.zscore(on.keys.key("expiry"), hold_id.bytes) is not None:
                    await on.lapse(hold_id)
            assert hidden_runs(await on.redis.get(on.keys.key("map")) or b"", await _digits(on)) == []
        await audit(on)


async def _allocate_best(on: Stage, step: Step, live: list[UUID]) -> None:
    """Ask for seats: where the map has some, they are those that the rules choose."""
    zone = on.event.zones[step.place % 2]
    before = await on.redis.get(on.keys.key("map")) or b""
    wish = Wish.under(on.event.document.policy, step.many)
    stretch = without_others(on.event, zone, before[zone.first : zone.last + 1], step.categories)
    choice = choose_seats([stretch], wish)
    reply = await allocate(on, step.many, zones=[zone.index], categories=step.categories)
    if choice:
        assert reply.status is Status.DONE
        assert [seat.value - zone.first for seat in reply.seats] == choice.places
    if reply.status is Status.DONE and reply.hold_id:
        live.append(reply.hold_id)


async def _digits(on: Stage) -> bytes:
    return await on.redis.hget(on.keys.key("counts"), "runs") or b""


async def _kind_digits(on: Stage) -> bytes:
    return await on.redis.hget(on.keys.key("counts"), "kind_runs") or b""
