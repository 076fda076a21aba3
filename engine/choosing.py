"""Which free seats to give to somebody who asks for a number of them.

Works on a zone's stretch of the map: a byte per seat, best seats first, rows ended by a separator. lua/include has the
same rules for Redis, and a test compares the two; here they serve the row-lock backend.

A **run** is as many free seats next to each other as there are. Taking seats from a run is **clean** when it leaves
no seat alone: on either side there is nothing left, or two seats or more. In a row that is more than nine tenths taken
a seat left alone is **excused**. Where only some categories of seats are wanted, the free seats of others are drawn as
a comma: they are not given, but they are neighbours, and may be left alone. In order of preference:

1. seats next to each other, clean;
2. seats next to each other, excused, or, unless orphans are refused, leaving as few alone as possible;
3. unless the group must sit together, clusters in rows at most `max_split` apart: as few orphans as possible, then as
   few clusters.

With several zones each step is tried in all of them, in the order of preference, before the next.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Self

import msgspec

from holdfast.engine.policy import Policy

# Windows of rows that are compared before the best split so far is taken; a zone that is almost full has thousands.
MAX_WINDOWS = 8
# Rows with free seats from which windows are tried at all.
MAX_FIRST_ROWS = 400

FREE = ord(".")
# A free seat of a category that is not wanted.
LEFT_OUT = ord(",")

_RUN = re.compile(rb"[.,]+")
_PART = re.compile(rb"\.+")
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
    """A run, and parts of it that may be given, by start and end. Of these parts one cluster can be taken."""

    start: int
    end: int
    excused: bool
    parts: tuple[tuple[int, int], ...]

    def best(self, count: int) -> tuple[int, int] | None:
        """How many seats are left alone at least if so many are given, and where the first of these begin."""
        # Only next to the ends of a run is anybody left alone: of three places in a row one is clean.
        tried = (
            (self._orphans(place, count), place)
            for start, end in self.parts
            for place in range(start, min(end - count, start + 2) + 1)
        )
        return min(tried, default=None)

    def places(self, count: int) -> Iterator[tuple[int, bool]]:
        """Where so many seats may begin, and whether that is clean."""
        for start, end in self.parts:
            for place in range(start, end - count + 1):
                yield place, not self._orphans(place, count)

    def _orphans(self, place: int, count: int) -> int:
        return (place - self.start == 1) + (self.end - place - count == 1)


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
    for clean_only in (True, False) if not wish.orphans_refused else (True,):
        for zone, (stretch, place) in enumerate(zip(stretches, places, strict=True)):
            runs = (run for row in _rows(stretch) for run in row)
            starts = [start for run in runs for start, clean in run.places(wish.count) if clean or not clean_only]
            if starts:
                start = min(starts, key=lambda each: (abs(each - place), each))
                block = Cluster(start, wish.count)
                return Choice(zone, (block,), orphans_left(stretch, range(start, start + wish.count)))
    return None


def draw_stretch(rows: bytes, free: Iterable[int], left_out: Container[int] = ()) -> bytes:
    """A stretch with the rows of another, in which these places are free and no others; some are not wanted."""
    drawn = bytearray(_SEAT.sub(b"h", rows))
    for place in free:
        drawn[place] = LEFT_OUT if place in left_out else FREE
    return bytes(drawn)


def orphans_left(stretch: bytes, places: Iterable[int]) -> tuple[int, ...]:
    """The seats that taking these places leaves alone and that were not alone before."""
    after, beside = bytearray(stretch), set()
    for place in places:
        after[place] = ord("h")
        if stretch[place] == FREE:
            beside |= {place - 1, place + 1}
    return tuple(sorted(place for place in beside if _is_alone(after, place)))


def row_is_almost_taken(row: bytes) -> bool:
    """Whether more than nine tenths of a row are taken."""
    return 10 * (row.count(FREE) + row.count(LEFT_OUT)) < len(row)


def _is_alone(stretch: bytearray, place: int) -> bool:
    def free(at: int) -> bool:
        return 0 <= at < len(stretch) and stretch[at] in (FREE, LEFT_OUT)

    return free(place) and not free(place - 1) and not free(place + 1)


def _rows(stretch: bytes) -> Iterator[list[_Run]]:
    """The runs of each row of which something may be given. Places count from the start of the stretch."""
    at = 0
    for row in stretch.split(b"|"):
        excused = row_is_almost_taken(row)
        runs = []
        for run in _RUN.finditer(row):
            for parts in _groups(row, run):
                placed = tuple((at + start, at + end) for start, end in parts)
                runs.append(_Run(at + run.start(), at + run.end(), excused, placed))
        yield runs
        at += len(row) + 1


def _groups(row: bytes, run: re.Match[bytes]) -> Iterator[list[tuple[int, int]]]:
    """The parts of a run that may be given, those together of which only one can be used: they have one seat between
    them, which both would leave alone. Two seats between them leave nobody alone, whatever is taken on either side."""
    group: list[tuple[int, int]] = []
    for part in _PART.finditer(row, run.start(), run.end()):
        if group and part.start() - group[-1][1] > 1:
            yield group
            group = []
        group.append(part.span())
    if group:
        yield group


def _together(rows: Sequence[Sequence[_Run]], wish: Wish) -> tuple[Cluster, ...]:
    for row in rows:
        for run in row:
            found = run.best(wish.count)
            if found and found[0] == 0:
                return (Cluster(found[1], wish.count),)
    return ()


def _together_but_one(rows: Sequence[Sequence[_Run]], wish: Wish) -> tuple[Cluster, ...]:
    runs = [run for row in rows for run in row]
    excused = next((start for run in runs if run.excused for start, _ in run.places(wish.count)), None)
    if excused is not None:
        return (Cluster(excused, wish.count),)
    fewest = min((found for run in runs if (found := run.best(wish.count))), default=None)
    return (Cluster(fewest[1], wish.count),) if fewest and not wish.orphans_refused else ()


def _split(rows: Sequence[Sequence[_Run]], wish: Wish) -> tuple[Cluster, ...]:
    """The best split of the first windows that have one; a window is a row with free seats and those behind it."""
    if wish.max_split is None or wish.count == 1:
        return ()
    best: tuple[tuple[int, int], tuple[Cluster, ...]] | None = None
    windows = 0
    first_rows = [first for first, row in enumerate(rows) if row]
    for first in first_rows[:MAX_FIRST_ROWS]:
        runs = [run for each in rows[first : first + wish.max_split + 1] for run in each]
        if sum(run.end - run.start for run in runs) < wish.count:
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
        best = [run.best(more) for more in range(1, wish.count + 1)]
        # From many to few, so that a run is not used twice.
        for have in range(wish.count - 1, -1, -1):
            known = ways[have]
            if known is None:
                continue
            (orphans, clusters), taken = known
            for more in range(wish.count - have, 0, -1):
                found = best[more - 1]
                if found is None:
                    continue
                left_alone = 0 if run.excused else found[0]
                if left_alone and wish.orphans_refused:
                    continue
                cost = (orphans + left_alone, clusters + 1)
                rival = ways[have + more]
                if rival is None or cost < rival[0]:
                    ways[have + more] = (cost, (*taken, Cluster(found[1], more)))
    return ways[wish.count]
