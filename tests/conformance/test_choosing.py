"""Choosing seats, on every backend: together, nobody left alone, and groups split as the policy says."""

from collections.abc import Sequence

import pytest
from conformance.halls import OpenHall, somebody

from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from support.drawn import drawn_event

STRICT = Policy(rate_limit_seats=0, orphan_avoidance_strict=True)
LENIENT = Policy(rate_limit_seats=0)
TOGETHER = Policy(rate_limit_seats=0, group_adjacency_strict=True)
SAME_ROW = Policy(rate_limit_seats=0, max_group_split=0)


@pytest.mark.parametrize(
    ("drawings", "count", "policy", "chosen"),
    [
        # The worked example of seats 6 and 7: 3 and 4 leave nobody alone, so they come first.
        ([".h..h...h."], 2, STRICT, [(0, 2), (0, 3)]),
        ([".hhhh...h."], 2, LENIENT, [(0, 5), (0, 6)]),
        ([".hhhh...hh"], 2, TOGETHER, [(0, 5), (0, 6)]),
        # Held seats in between: best effort gives two apart, a strict group gets none.
        ([".h.h."], 2, LENIENT, [(0, 0), (0, 2)]),
        ([".h.h."], 2, TOGETHER, None),
        # A row more than nine tenths sold excuses the seat that is left alone.
        (["h" * 28 + ".."], 1, STRICT, [(0, 28)]),
        (["h" * 18 + ".."], 1, STRICT, None),
        # A party of five: four together and one behind.
        (["hh....hh|hhh.hhhh"], 5, LENIENT, [(0, 2), (0, 3), (0, 4), (0, 5), (0, 12)]),
        (["hh....hh|hhh.hhhh"], 5, SAME_ROW, None),
        (["hh....hh|h|h|hhh.hhhh"], 5, LENIENT, None),
        # Zones in order of preference; nobody is left alone while a later zone has a better choice.
        (["...", "...."], 2, LENIENT, [(1, 4), (1, 5)]),
        (["...", "h"], 2, LENIENT, [(0, 0), (0, 1)]),
        (["h", "h..h"], 2, LENIENT, [(1, 3), (1, 4)]),
    ],
)
async def test_seats_are_chosen_by_the_rules(
    open_hall: OpenHall,
    drawings: Sequence[str],
    count: int,
    policy: Policy,
    chosen: list[tuple[int, int]] | None,
) -> None:
    async with open_hall(drawn_event(drawings, policy)) as hall:
        reply = await hall.backend.allocate_seats(hall.event, somebody(), zones=range(len(drawings)), count=count)

        assert (reply.status, list(reply.seats)) == (
            (Status.NO_AVAILABLE_SEATS, []) if chosen is None else (Status.DONE, chosen)
        )
