"""Redis chooses the seats that engine/choosing.py chooses, whatever the map."""

import asyncio
from collections.abc import Collection, Sequence

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from holdfast.engine.choosing import Wish, choose_seats
from holdfast.engine.layout import SeatCategory
from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from support.drawn import drawn_event, without_others
from support.scripts import allocate, audited, unchanged

ROWS = st.text("...hhh", min_size=1, max_size=12) | st.builds(
    # A row that is almost sold, in which a seat left alone is excused.
    lambda before, gap, after: "h" * before + gap + "h" * after,
    st.integers(0, 40),
    st.sampled_from([".", "..", "...", "..h.", "....."]),
    st.integers(0, 40),
)
DRAWINGS = st.lists(st.lists(ROWS, min_size=1, max_size=6).map("|".join), min_size=1, max_size=3)
POLICIES = st.builds(
    Policy,
    rate_limit_seats=st.just(0),
    max_seats_per_booking=st.just(100),
    orphan_avoidance_strict=st.booleans(),
    group_adjacency_strict=st.booleans(),
    max_group_split=st.integers(0, 3),
)
STRICT = Policy(rate_limit_seats=0, orphan_avoidance_strict=True)
LENIENT = Policy(rate_limit_seats=0)
TOGETHER = Policy(rate_limit_seats=0, orphan_avoidance_strict=True, group_adjacency_strict=True)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(drawings=DRAWINGS, count=st.integers(1, 7), policy=POLICIES)
@example(drawings=["...", "...."], count=2, policy=LENIENT)
@example(drawings=["h" * 30 + "..", ".."], count=1, policy=STRICT)
@example(drawings=["h..h..h", "h|..|h|..|h"], count=4, policy=STRICT)
def test_redis_chooses_as_the_rules_say(server_url: str, drawings: Sequence[str], count: int, policy: Policy) -> None:
    asyncio.run(_compare(server_url, drawings, count, policy))


KINDS = st.lists(st.text("..rihh", min_size=1, max_size=14), min_size=1, max_size=6).map("|".join)
ALMOST_SOLD = st.builds(
    lambda before, gap: "h" * before + gap, st.integers(20, 60), st.sampled_from([".r", "r.", "i.r", "rr", "ri."])
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    drawings=st.lists(KINDS | ALMOST_SOLD, min_size=1, max_size=3),
    count=st.integers(1, 5),
    policy=POLICIES,
    categories=st.frozensets(
        st.sampled_from([SeatCategory.STANDARD, SeatCategory.RESTRICTED_VIEW, SeatCategory.AISLE]), min_size=1
    ),
)
@example(drawings=["r..r"], count=2, policy=LENIENT, categories={SeatCategory.STANDARD})
@example(drawings=["." * 30 + "i"], count=1, policy=LENIENT, categories={SeatCategory.AISLE})
def test_redis_chooses_among_some_categories_as_the_rules_say(
    server_url: str, drawings: Sequence[str], count: int, policy: Policy, categories: Collection[SeatCategory]
) -> None:
    asyncio.run(_compare(server_url, drawings, count, policy, categories))


async def _compare(
    url: str, drawings: Sequence[str], count: int, policy: Policy, categories: Collection[SeatCategory] = ()
) -> None:
    """Ask again and again until nothing is left to be had: each time the rules and Redis agree."""
    async with audited(url, drawn_event(drawings, policy)) as on:
        zones = on.event.zones
        status = Status.DONE
        while status is Status.DONE:
            places = await on.redis.get(on.keys.key("map")) or b""
            stretches = [
                without_others(on.event, zone, places[zone.first : zone.last + 1], categories) for zone in zones
            ]
            choice = choose_seats(stretches, Wish.under(policy, count))
            reply = await allocate(on, count, zones=range(len(zones)), categories=categories)
            status = reply.status
            if choice is None:
                there = on.event.narrowed(range(len(zones)), categories) != frozenset()
                assert status is (Status.NO_AVAILABLE_SEATS if there or not categories else Status.SEAT_NOT_FOUND)
            else:
                zone = zones[choice.zone]
                assert reply.seats == tuple((zone.index, zone.first + place) for place in choice.places)


@pytest.mark.parametrize(
    ("drawing", "count", "policy", "chosen"),
    [
        # The worked example: 3 and 4 leave nobody alone; without them 6 and 7 do, and are the only two together.
        (".h..h...h.", 2, STRICT, [3, 4]),
        (".hhhh...h.", 2, LENIENT, [6, 7]),
        # A row of single seats: the group is split, unless the policy wants it together.
        (".h.h.", 2, STRICT, [1, 3]),
        (".h.h.", 2, TOGETHER, None),
        # More than nine tenths of the row are sold.
        ("s" * 28 + "..", 1, STRICT, [29]),
        ("s" * 18 + "..", 1, STRICT, None),
        ("s" * 18 + "..", 1, LENIENT, [19]),
    ],
)
async def test_worked_examples(
    server_url: str, drawing: str, count: int, policy: Policy, chosen: list[int] | None
) -> None:
    async with audited(server_url, drawn_event([drawing], policy)) as on:
        if chosen is None:
            async with unchanged(on):
                assert (await allocate(on, count)).status is Status.NO_AVAILABLE_SEATS
        else:
            assert [seat.value + 1 for seat in (await allocate(on, count)).seats] == chosen


async def test_four_together_and_one_in_the_row_behind(server_url: str) -> None:
    async with audited(server_url, drawn_event(["hh....hh|hhh.hhhh"], LENIENT)) as on:
        assert [seat.value for seat in (await allocate(on, 5)).seats] == [2, 3, 4, 5, 12]


async def test_zones_in_order_of_preference(server_url: str) -> None:
    async with audited(server_url, drawn_event(["....", "....|...."], LENIENT)) as on:
        given = [(await allocate(on, 4, zones=[1, 0])).seats[0] for _ in range(3)]

        assert given == [(1, 5), (1, 10), (0, 0)]
