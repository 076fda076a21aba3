"""Which free seats to give to somebody who asks for a number of them.

Works on a zone's stretch of the map: a byte per seat, best seats first, rows ended by a separator. lua/include has the
same rules for Redis, and a test compares the two; here they serve the row-lock backend.

A **run** is as many free seats next to each other as there are. Taking seats from a run is **clean** when it leaves
no seat alone: the rest is nothing, or two seats or more. In a row that is more than nine tenths taken a seat left
alone is **excused**. In order of preference:

1. seats next to each other, clean;
2. seats next to each other, excused, or, unless orphans are refused, leaving one seat alone;
3. unless the group must sit together, clusters in rows at most `max_split` apart: as few orphans as possible, then as
   few clusters.

With several zones each step is tried in all of them, in the order of preference, before the next.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import msgspec

from holdfast.engine.policy import Policy

# Windows of rows that are compared before the best split so far is taken; a zone that is almost full has thousands.
MAX_WINDOWS = 8
# Rows with free seats from which windows are tried at all.
MAX_FIRST_ROWS = 400

_RUN = re.compile(rb"\.+")
_SEAT = re.compile(rb"[^|]")


class Wish(msgspec.Struct, frozen=True):
    """What is asked for. `max_split` is how many rows clusters may lie apart; None keeps the group together."""

    count: int
    orphans_refused: bool = True
    max_split: int | None = 2

    @classmethod
    def under(cls, policy: Policy, count: int) -> Self:
        """So many seats, as a policy wants them chosen."""
        max_split = None if policy.group_adjacency_strict else policy.max_group_split
        return cls(count, policy.orphan_avoidance_strict, max_split)


class Cluster(msgspec.Struct, frozen=True):
    """Seats next to each other: the place of the first in its zone's stretch, and how many."""

    start: int
    length: int


class Choice(msgspec.Struct, frozen=True):
    """The seats chosen, by the index of their zone, and the seats that are left alone by it."""

    zone: int
    clusters: tuple[Cluster, ...]
    orphans: tuple[int, ...] = ()

    @property
    def places(self) -> list[int]:
        """The place of each seat in its zone's stretch."""
        return [place for each in self.clusters for place in range(each.start, each.start + each.length)]


class _Run(msgspec.Struct, frozen=True):
    start: int
    length: int
    excused: bool


def choose_seats(stretches: Sequence[bytes], wish: Wish) -> Choice | None:
    """The best choice over zones, given by their stretches of the map in the order of preference."""
    zones = [list(_rows(stretch)) for stretch in stretches]
    for step in (_together, _together_but_one, _split):
        for zone, rows in enumerate(zones):
            clusters = step(rows, wish)
            if clusters:
                choice = Choice(zone, clusters)
                orphans = orphans_left(stretches[zone], choice.places)
                return msgspec.structs.replace(choice, orphans=orphans)
    return None


def nearest_block(stretches: Sequence[bytes], places: Sequence[int], wish: Wish) -> Choice | None:
    """Free seats next to each other in the first zone that has any, the nearest to a place in its stretch.

    Of two as near the earlier. Those that leave a seat alone are taken only if there are no others in any zone, and
    never if orphans are refused.
    """
    for clean in (True, False) if not wish.orphans_refused else (True,):
        for zone, (stretch, place) in enumerate(zip(stretches, places, strict=True)):
            starts = [start for row in _rows(stretch) for run in row for start in _starts(run, wish.count, clean)]
            if starts:
                start = min(starts, key=lambda each: (abs(each - place), each))
                block = Cluster(start, wish.count)
                return Choice(zone, (block,), orphans_left(stretch, range(start, start + wish.count)))
    return None


def _starts(run: _Run, count: int, clean: bool) -> Iterator[int]:
    """Where so many seats of a run may begin; with `clean` so that nobody is left alone."""
    slack = run.length - count
    for offset in range(slack + 1):
        if not clean or 1 not in (offset, slack - offset):
            yield run.start + offset


def draw_stretch(rows: bytes, free: Iterable[int]) -> bytes:
    """A stretch with the rows of another, in which these places are free and no others."""
    drawn = bytearray(_SEAT.sub(b"h", rows))
    for place in free:
        drawn[place] = ord(".")
    return bytes(drawn)


def orphans_left(stretch: bytes, places: Iterable[int]) -> tuple[int, ...]:
    """The seats that taking these places leaves alone and that were not alone before."""
    after, beside = bytearray(stretch), set()
    for place in places:
        after[place] = ord("h")
        if stretch[place] == ord("."):
            beside |= {place - 1, place + 1}
    return tuple(sorted(place for place in beside if _is_alone(after, place)))


def row_is_almost_taken(row: bytes) -> bool:
    """Whether more than nine tenths of a row are taken."""
    return 10 * row.count(b".") < len(row)


def _is_alone(stretch: bytearray, place: int) -> bool:
    def free(at: int) -> bool:
        return 0 <= at < len(stretch) and stretch[at] == ord(".")

    return free(place) and not free(place - 1) and not free(place + 1)


def _rows(stretch: bytes) -> Iterator[list[_Run]]:
    """The runs of each row. Places count from the start of the stretch."""
    at = 0
    for row in stretch.split(b"|"):
        excused = row_is_almost_taken(row)
        yield [_Run(at + run.start(), len(run[0]), excused) for run in _RUN.finditer(row)]
        at += len(row) + 1


def _together(rows: Sequence[Sequence[_Run]], wish: Wish) -> tuple[Cluster, ...]:
    for row in rows:
        for run in row:
            if run.length >= wish.count and run.length != wish.count + 1:
                return (Cluster(run.start, wish.count),)
    return ()


def _together_but_one(rows: Sequence[Sequence[_Run]], wish: Wish) -> tuple[Cluster, ...]:
    for orphan_is_fine in (True, False):
        for row in rows:
            for run in row:
                if run.length == wish.count + 1 and (run.excused if orphan_is_fine else not wish.orphans_refused):
                    return (Cluster(run.start, wish.count),)
    return ()


def _split(rows: Sequence[Sequence[_Run]], wish: Wish) -> tuple[Cluster, ...]:
    """The best split of the first windows that have one; a window is a row with free seats and those behind it."""
    if wish.max_split is None or wish.count == 1:
        return ()
    best: tuple[tuple[int, int], tuple[Cluster, ...]] | None = None
    windows = 0
    first_rows = [first for first, row in enumerate(rows) if row]
    for first in first_rows[:MAX_FIRST_ROWS]:
        runs = [run for each in rows[first : first + wish.max_split + 1] for run in each]
        if sum(run.length for run in runs) < wish.count:
            continue
        found = _fill(runs, wish)
        if found is None:
            continue
        windows += 1
        if best is None or found[0] < best[0]:
            best = found
        if best[0] == (0, 2) or windows == MAX_WINDOWS:
            break
    return best[1] if best else ()


def _fill(runs: Sequence[_Run], wish: Wish) -> tuple[tuple[int, int], tuple[Cluster, ...]] | None:
    """The way to take the seats from these runs with the fewest orphans, then the fewest clusters, and that cost.

    `ways[n]` is the best way to have n seats from the runs looked at so far; of two as good the earlier stays.
    """
    ways: list[tuple[tuple[int, int], tuple[Cluster, ...]] | None] = [None] * (wish.count + 1)
    ways[0] = ((0, 0), ())
    for run in runs:
        # From many to few, so that a run is not used twice.
        for have in range(wish.count - 1, -1, -1):
            known = ways[have]
            if known is None:
                continue
            (orphans, clusters), taken = known
            for more in range(min(run.length, wish.count - have), 0, -1):
                left_alone = run.length - more == 1 and not run.excused
                if left_alone and wish.orphans_refused:
                    continue
                cost = (orphans + left_alone, clusters + 1)
                rival = ways[have + more]
                if rival is None or cost < rival[0]:
                    ways[have + more] = (cost, (*taken, Cluster(run.start, more)))
    return ways[wish.count]
