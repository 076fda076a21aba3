"""What this process knows to be taken, so that most refusals of a hot seat never reach Redis.

The cache is negative only: it can say that a seat is taken, never that it is free. It is fed by the log, so a seat it
calls taken was taken when the log said so; the worst it can do is refuse a seat for the moment between a
release and its arrival here. It answers nothing while it does not follow the log, and begins anew, empty, whenever a
shard gets another mode or epoch: of shards that Redis does not serve it knows nothing.
"""

import asyncio
import time
from collections import OrderedDict
from contextlib import aclosing
from itertools import starmap
from uuid import UUID

import msgspec

from holdfast.engine.backend import NEVER_MS
from holdfast.engine.epochs import Epochs
from holdfast.engine.log import Fields, follow_logs, place_of
from holdfast.engine.records import seats_of_blocks, seats_of_hold, unpack_scope
from holdfast.engine.wire import Wire

# Later than every hold ends, and what a caller is told instead.
_SOLD_MS, _BLOCKED_MS = 1 << 62, 1 << 61
_TOLD_MS = {_SOLD_MS: NEVER_MS, _BLOCKED_MS: 0}
# Where each is in the counts of an event; holds come first.
_COUNTED_AS = {_SOLD_MS: 1, _BLOCKED_MS: 2}


class Taken(msgspec.Struct, frozen=True):
    """A seat that cannot be had. `until_ms` is NEVER_MS when it is sold, and 0 when it is blocked."""

    until_ms: int


class HotSeats(msgspec.Struct, frozen=True):
    """What a cache knows at one moment."""

    seats: tuple[tuple[tuple[int, int, int], tuple[int | None, int]], ...]

    def count(self) -> dict[int, tuple[int, int, int]]:
        """How many seats of each event are held, sold and blocked. Holds that have run out are not counted."""
        now_ms, found = int(time.time() * 1000), dict[int, list[int]]()
        for (_, event, _), (_, until_ms) in self.seats:
            counts = found.setdefault(event, [0, 0, 0])
            if until_ms in _COUNTED_AS:
                counts[_COUNTED_AS[until_ms]] += 1
            elif until_ms > now_ms:
                counts[0] += 1
        return {event: (held, sold, blocked) for event, (held, sold, blocked) in found.items()}


class HotCache:
    """Taken seats, keyed by organisation, event and ordinal, the least recently fed forgotten first.

    Ids are kept as numbers, which are compared and looked up without the help of Python code.
    """

    def __init__(self, max_seats: int = 200_000, *, patience_s: float = 3.0) -> None:
        self._max_seats = max_seats
        self._patience_s = patience_s
        self._seats: OrderedDict[tuple[int, int, int], tuple[int | None, int]] = OrderedDict()
        self._places: dict[bytes, bytes] = {}
        self._following = False
        self._epochs = Epochs(0)
        self._changes = 0

    def taken(self, organization_id: UUID, event_id: UUID, ordinal: int, *, user_id: UUID, now_ms: int) -> Taken | None:
        """That a seat is taken by somebody else, or None, which says nothing. `now_ms` is this machine's clock."""
        if not self._following or self._epochs.changes != self._changes:
            return None
        found = self._seats.get((organization_id.int, event_id.int, ordinal))
        if found is None:
            return None
        holder, until_ms = found
        if holder == user_id.int or until_ms <= now_ms:
            return None
        return Taken(_TOLD_MS.get(until_ms, until_ms))

    def snapshot(self) -> tuple[tuple[tuple[int, int, int], ...], HotSeats]:
        """What is known, and up to where: shard, epoch and number of the last entry that was taken in of each log.

        Nothing while no log is followed.
        """
        if not self._following or self._epochs.changes != self._changes:
            return (), HotSeats(())
        return tuple(starmap(place_of, self._places.items())), HotSeats(tuple(self._seats.items()))

    async def follow(self, wire: Wire, epochs: Epochs) -> None:
        """Feed the cache from the logs of the shards that Redis serves until cancelled; empty and silent afterwards.

        Raises a BackendError when the connection breaks, and TimeoutError when the server says nothing for the cache's
        patience, which is more than the second after which a quiet log says so.
        """
        while True:
            changes = epochs.changes
            if served := epochs.in_redis:
                await self._follow(wire, epochs, served)
            else:
                while epochs.changes == changes:
                    await epochs.next_change(self._patience_s)

    async def _follow(self, wire: Wire, epochs: Epochs, served: dict[int, int]) -> None:
        """Follow until a shard changes."""
        changes = epochs.changes
        self._places = {}
        try:
            async with aclosing(follow_logs(wire, served, self._places)) as batches:
                while epochs.changes == changes:
                    async with asyncio.timeout(self._patience_s):
                        entries = await anext(batches)
                    self._following, self._epochs, self._changes = True, epochs, changes
                    for entry in entries:
                        self.apply(entry)
        finally:
            self._following = False
            self._seats.clear()

    def apply(self, fields: Fields) -> None:
        """Take in one log entry. An extended hold is left to run out here: Redis then answers for it."""
        organization, event = unpack_scope(fields)
        match fields[b"op"]:
            case b"hold":
                user, until_ms, seats = seats_of_hold(fields)
                self._take(organization, event, seats, (user, until_ms))
            case b"release" | b"expire" | b"unblock":
                for seat in seats_of_blocks(fields):
                    self._seats.pop((organization, event, seat), None)
            case b"sell":
                self._take(organization, event, seats_of_blocks(fields), (None, _SOLD_MS))
            case b"block":
                self._take(organization, event, seats_of_blocks(fields), (None, _BLOCKED_MS))
            case b"open" | b"close":
                for key in [key for key in self._seats if key[:2] == (organization, event)]:
                    del self._seats[key]

    def _take(self, organization: int, event: int, seats: list[int], taken: tuple[int | None, int]) -> None:
        for seat in seats:
            key = (organization, event, seat)
            self._seats[key] = taken
            self._seats.move_to_end(key)
        while len(self._seats) > self._max_seats:
            self._seats.popitem(last=False)
