"""Looking for free seats next to each other, the best first, in a zone of an event that Postgres serves."""

from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence

# Says of an ordinal that its seat is not to be given.
IsUnwanted = Callable[[int], bool]

# Lists the next free seats after an ordinal, up to another; nothing when there are no more.
ListSeats = Callable[[int, int], Awaitable[list[int]]]


class FreeSeats:
    """The free seats of a zone, listed as far as somebody looked, and kept true while a transaction takes and frees.

    A row of the venue ends where an ordinal is missing, so seats are neighbours where ordinals are. Seats that are
    `left_out` never count: wheelchair and companion seats are not for whoever comes along.
    """

    def __init__(self, first: int, last: int, list_seats: ListSeats, left_out: Container[int] = ()) -> None:
        self._last = last
        self._list_seats = list_seats
        self._left_out = left_out
        self._listed_to = first - 1
        self._free: list[int] = []
        self._taken: set[int] = set()
        self._given: set[int] = set()

    def take(self, ordinals: Iterable[int]) -> None:
        """Seats that are no longer to be had."""
        for ordinal in ordinals:
            self._taken.add(ordinal)
            self._given.discard(ordinal)
            at = bisect_left(self._free, ordinal)
            if at < len(self._free) and self._free[at] == ordinal:
                del self._free[at]

    def give(self, ordinals: Iterable[int]) -> None:
        """Seats that have come free, and are not listed as such before the transaction has written that."""
        for ordinal in ordinals:
            self._taken.discard(ordinal)
            if ordinal in self._left_out:
                continue
            if ordinal > self._listed_to:
                self._given.add(ordinal)
            elif ordinal not in self._free:
                insort(self._free, ordinal)

    async def first_clean_run(self, count: int, is_unwanted: IsUnwanted | None = None) -> list[int]:
        """The first so many free seats next to each other that leave no single seat behind, or nothing; none of those
        that are not wanted."""
        start = 0
        while True:
            complete = self._listed_to >= self._last
            if is_unwanted:
                found, start = find_wanted_run(self._free, count, start, is_unwanted, complete=complete)
            else:
                found, start = find_clean_run(self._free, count, start, complete=complete)
            if found is not None:
                return self._free[found : found + count]
            if complete:
                return []
            await self._list_more()

    async def all(self) -> Sequence[int]:
        """Every free seat of the zone."""
        while self._listed_to < self._last:
            await self._list_more()
        return self._free

    async def _list_more(self) -> None:
        more = await self._list_seats(self._listed_to, self._last)
        listed_to = more[-1] if more else self._last
        given = {ordinal for ordinal in self._given if ordinal <= listed_to}
        self._given -= given
        self._free += sorted(each for each in given.union(more) - self._taken if each not in self._left_out)
        self._listed_to = listed_to


def find_clean_run(ordinals: Sequence[int], count: int, start: int, *, complete: bool) -> tuple[int | None, int]:
    """Where, from the beginning of a run on, one begins that has so many seats or at least two more.

    If none does, where to go on once more ordinals are listed; while the list is not complete its last run may grow.
    """
    at = start
    while at < len(ordinals):
        end = at + 1
        while end < len(ordinals) and end - at < count + 2 and ordinals[end] == ordinals[end - 1] + 1:
            end += 1
        if end - at == count + 2:
            return at, at
        if end == len(ordinals) and not complete:
            return None, at
        if end - at == count:
            return at, at
        at = end
    return None, at


def find_wanted_run(
    ordinals: Sequence[int], count: int, start: int, is_unwanted: IsUnwanted, *, complete: bool
) -> tuple[int | None, int]:
    """As find_clean_run, for seats of which some are not wanted: they are not given, and may be left alone."""
    at = start
    while at < len(ordinals):
        end = at + 1
        while end < len(ordinals) and ordinals[end] == ordinals[end - 1] + 1:
            end += 1
        if end == len(ordinals) and not complete:
            return None, at
        wanted = 0
        for place in range(at, end):
            wanted = 0 if is_unwanted(ordinals[place]) else wanted + 1
            first = place + 1 - count
            if wanted >= count and 1 not in (first - at, end - 1 - place):
                return first, at
        at = end
    return None, at
