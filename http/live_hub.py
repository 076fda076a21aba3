"""Tells any number of readers what changes in the events they look at.

Each event that is looked at has one topic in this process: its seats as they are committed, and the position of its
feed up to which they are. A new reader gets those as a snapshot; what comes after goes to every reader of the topic as
the same bytes, encoded once. A reader that does not keep up is dropped, and goes on later from the last id it has got;
the others never wait for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.engine.layout import FREE_COMPANION, CompiledEvent
from holdfast.engine.sharing import Shared
from holdfast.engine.telemetry import live_dropped, live_readers
from holdfast.http.kept_seats import KeptSeats
from holdfast.http.occupancy import Occupied
from holdfast.http.seat_lists import SeatMap, zones_of
from holdfast.persistence.feed import Change, FeedState, Told
from holdfast.persistence.occupancy import Figures
from holdfast.persistence.pool import POSTGRES_ERRORS

# Changes that go out in one message at most, and changes that a reader who comes back is told before it is cheaper to
# show everything anew.
PAGE = 500
RESUMED_MAX = 2_000

# Messages that may wait for one reader. The announcer makes ten rounds a second at most.
QUEUE_MAX = 64

# When a reader whose stream ends should come back.
RETRY_MS = 2_000

# Sending to a reader takes about so long, and of the time between two requests of a buyer no more than a share is for
# readers: the more there are, the longer a round of all of them takes, and the more changes go in one piece.
_SENDING_S = 35e-6
_SENDING_SHARE = 0.1
_ROUND_MAX_S = 1.0
_AT_A_TIME = 50
_PAGES_MAX = 16

_RETRY_S = 0.2
# What becomes of a seat; one that comes free gets the letter of its kind.
_LETTERS = {"seat_held": b"h"[0], "seat_sold": b"s"[0], "seats_blocked": b"b"[0]}
_FREEING = ("seat_released", "seats_unblocked")

_log = logging.getLogger(__name__)


class HubFull(Exception):
    """This process has as many readers as it may have."""


class Source(Protocol):
    """Where the hub reads the feeds of events."""

    async def state(self, organization_id: UUID, event_id: UUID) -> FeedState: ...

    async def changes(self, organization_id: UUID, event_id: UUID, *, after: int, limit: int) -> Sequence[Change]: ...


class LivePlaces(msgspec.Struct, frozen=True):
    """A number of general-admission places."""

    zone_id: str
    quantity: int


class LiveChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change as readers see it. Whose it is they never see.

    Beside what happens to seats there are `companions_declined`, with wheelchair seats, and what follows for companion
    seats: `companions_kept` and `companions_freed`.
    """

    event: str
    seat_ids: tuple[str, ...]
    quantities: tuple[LivePlaces, ...] = ()
    reason: str | None = None
    timestamp: str


class LiveChanges(msgspec.Struct, frozen=True):
    """Changes in their order, and how full the event is after them."""

    changes: tuple[LiveChange, ...]
    occupancy: Occupied


class LiveSnapshot(SeatMap, frozen=True):
    """An event as it is now."""

    occupancy: Occupied


def frame(kind: str, content: msgspec.Struct | dict[str, str], position: int | None = None) -> bytes:
    """A server-sent event. One with a position is where a reader may go on."""
    head = b"" if position is None else b"id: %d\n" % position
    return head + b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(content))


def ending(reason: str) -> bytes:
    """The last words to a reader: why, and when to come back. Its client then names the last id it has got."""
    return b"retry: %d\n" % RETRY_MS + frame("end", {"reason": reason})


class Reader:
    """What waits for one reader."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self._first: bytes | None = None
        self._since = 0

    @property
    def waiting(self) -> bool:
        """Whether it has not taken everything yet that it was told."""
        return bool(self._frames)

    def begin(self, first: bytes) -> None:
        """What comes before everything that waits already."""
        self._first = first

    def restart(self, first: bytes, position: int) -> None:
        """What replaces everything up to a position, whether it waits already or is on its way."""
        self._frames.clear()
        self._first = first
        self._since = position

    def offer(self, message: bytes, position: int) -> bool:
        """Put what leads to a position in line. False if there is no room: the reader is then dropped."""
        if self._ended:
            return False
        if position <= self._since:
            return True
        if len(self._frames) >= QUEUE_MAX:
            live_dropped.value += 1
            self._frames.clear()
            self.end("too_slow")
            return False
        self._frames.append(message)
        self._woken.set()
        return True

    def end(self, reason: str) -> None:
        """Nothing follows after what waits now."""
        if not self._ended:
            self._frames.append(ending(reason))
            self._ended = True
            self._woken.set()

    async def next(self, quiet_s: float) -> bytes | None:
        """Everything that waits, or a heartbeat when there was nothing for so long, or None at the end."""
        if not self.waiting and self._first is None:
            if self._ended:
                return None
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(quiet_s):
                    await self._woken.wait()
        waiting = [*([] if self._first is None else [self._first]), *self._frames]
        self._first = None
        self._frames.clear()
        return b"".join(waiting) or b": still here\n\n"


class Topic:
    """An event that is looked at."""

    def __init__(self, event: CompiledEvent) -> None:
        self.event = event
        self.readers: set[Reader] = set()
        self.interest = 0
        self.loading: Shared[None] = Shared()
        self.state: FeedState | None = None
        self._map = bytearray()
        self._snapshot: bytes | None = None
        self._offsets: dict[str, int] = {}
        self._declined: set[str] = set()
        self._keeper = KeptSeats(event)
        self._kept: frozenset[int] = frozenset()

    @property
    def scope(self) -> tuple[UUID, UUID]:
        return self.event.organization_id, self.event.event_id

    def load(self, state: FeedState) -> None:
        self.state = state
        # Which seats are kept follows from the others.
        self._map = bytearray(state.map.replace(b"c", FREE_COMPANION))
        self._declined = set(state.declined)
        self._kept = self._keeper.among(self._map, self._declined)
        self._offsets = {seat_id: offset for offset, seat_id in enumerate(self.event.seats)}
        self._snapshot = None

    def know(self, event: CompiledEvent) -> None:
        """The event as it is configured now; its seats never change."""
        if event.version != self.event.version:
            self.event, self._snapshot, self._keeper = event, None, KeptSeats(event)
            self._kept = self._keeper.among(self._map, self._declined)

    def hear(self, totals: Figures) -> None:
        if self.state is not None:
            self.state = msgspec.structs.replace(self.state, totals=totals)

    def apply(self, changes: Sequence[Change]) -> bytes:
        """Take changes in; the message that tells of them."""
        assert self.state is not None
        for change in changes:
            if change.event == "companions_declined":
                self._declined.update(change.payload.seat_ids)
                continue
            for seat_id in change.payload.seat_ids:
                if (offset := self._offsets.get(seat_id)) is not None:
                    self._map[offset] = self._letter(change.event, seat_id)
            if change.event in ("seat_held", *_FREEING):
                self._declined.difference_update(change.payload.seat_ids)
        self.state = msgspec.structs.replace(self.state, position=changes[-1].position)
        self._snapshot = None
        return self.encode(changes, self._consequences(changes[-1].payload.timestamp))

    def encode(self, changes: Sequence[Change], consequences: Sequence[LiveChange] = ()) -> bytes:
        """Changes as one message, whose id is the position of the last."""
        assert self.state is not None
        told = (*(self._tell(change) for change in changes), *consequences)
        return frame("changes", LiveChanges(told, Occupied.of(self.state.totals)), changes[-1].position)

    def _letter(self, change: str, seat_id: str) -> int:
        if change not in _FREEING:
            return _LETTERS[change]
        return self.event.seat_at[self.event.seats[seat_id].value].category.free_letter[0]

    def _consequences(self, timestamp: str) -> list[LiveChange]:
        """What has changed for companion seats that nobody has."""
        before, self._kept = self._kept, self._keeper.among(self._map, self._declined)
        freed = {place for place in before - self._kept if self._map[place] == FREE_COMPANION[0]}
        seat_ids = list(self.event.seats) if freed or self._kept - before else []
        return [
            LiveChange(event=name, seat_ids=tuple(seat_ids[place] for place in sorted(places)), timestamp=timestamp)
            for name, places in (("companions_kept", self._kept - before), ("companions_freed", freed))
            if places
        ]

    def snapshot(self) -> bytes:
        """The event as it is, as one message; encoded again only after a change."""
        assert self.state is not None
        if self._snapshot is None:
            occupied = Occupied.of(self.state.totals)
            shown = bytearray(self._map)
            for place in self._kept:
                shown[place] = b"c"[0]
            zones, letters = zones_of(self.event), shown.decode()
            told = LiveSnapshot(self.event.event_id, self.event.version, zones, letters, occupied)
            self._snapshot = frame("snapshot", told, self.state.position)
        return self._snapshot

    def _tell(self, change: Change) -> LiveChange:
        payload, zones = change.payload, self.event.zones
        return LiveChange(
            event=change.event,
            seat_ids=payload.seat_ids,
            quantities=tuple(
                LivePlaces(zones[each.zone].document.zone_id, each.quantity) for each in payload.quantities
            ),
            reason=payload.reason,
            timestamp=payload.timestamp,
        )


class Hub:
    """The topics of this process. `run` keeps them up to date; feed `hear` and `catch_up` from `follow_feed`."""

    def __init__(self, source: Source, *, readers_max: int = 5_000) -> None:
        self._source = source
        self._readers_max = readers_max
        self._topics: dict[tuple[UUID, UUID], Topic] = {}
        self._behind: set[Topic] = set()
        self._woken = asyncio.Event()
        self._readers = 0
        self._closed = False

    @property
    def readers(self) -> int:
        """How many read now."""
        return self._readers

    @asynccontextmanager
    async def reader(self, event: CompiledEvent, after: int | None = None) -> AsyncIterator[Reader]:
        """A reader of an event for the duration of the block, from a position on if that is possible.

        It begins with a snapshot, or with what came after the position. Raises HubFull, and what the source does.
        """
        if self._readers >= self._readers_max:
            raise HubFull
        scope = (event.organization_id, event.event_id)
        topic = self._topics.get(scope)
        if topic is None:
            topic = self._topics[scope] = Topic(event)
        topic.know(event)
        topic.interest += 1
        self._readers += 1
        live_readers.value += 1
        reader = Reader()
        try:
            await self._load(topic)
            await self._begin(topic, reader, after)
            if self._closed:
                reader.end("draining")
            yield reader
        finally:
            self._readers -= 1
            live_readers.value -= 1
            topic.interest -= 1
            topic.readers.discard(reader)
            if not topic.interest:
                self._topics.pop(scope, None)
                self._behind.discard(topic)

    def hear(self, told: Told) -> None:
        """An event has changed."""
        topic = self._topics.get((told.organization_id, told.event_id))
        if topic is not None:
            topic.hear(told.totals)
            self._fall_behind(topic)

    def catch_up(self) -> None:
        """Any event may have changed."""
        for topic in self._topics.values():
            self._fall_behind(topic)

    async def run(self) -> None:
        """Bring topics up to date until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._behind:
                topic = self._behind.pop()
                try:
                    await self._advance(topic)
                except POSTGRES_ERRORS as error:
                    _log.warning("live views stand still, trying again: %s", error)
                    self._fall_behind(topic)
                    await asyncio.sleep(_RETRY_S)

    def close(self) -> None:
        """Let every reader go, and tell it when to come back."""
        self._closed = True
        for topic in self._topics.values():
            for reader in topic.readers:
                reader.end("draining")

    def _fall_behind(self, topic: Topic) -> None:
        if topic.state is not None:
            self._behind.add(topic)
            self._woken.set()

    async def _load(self, topic: Topic) -> None:
        if topic.state is None:
            await topic.loading.run(partial(self._read, topic))

    async def _read(self, topic: Topic) -> None:
        topic.load(await self._source.state(*topic.scope))
        # What was announced since, and what was heard of it before there was anything to change.
        self._fall_behind(topic)

    async def _begin(self, topic: Topic, reader: Reader, after: int | None) -> None:
        assert topic.state is not None
        # Joined before anything is awaited: what comes from here on is in line, and what came before is at hand.
        topic.readers.add(reader)
        position = topic.state.position
        # What followed for companion seats at the time is not written down, so whoever missed it sees everything anew.
        if after is None or after > position or (topic.event.paired and after < position):
            reader.begin(topic.snapshot())
            return
        missed = await self._source.changes(*topic.scope, after=after, limit=RESUMED_MAX + 1)
        if len(missed) > RESUMED_MAX:
            reader.restart(topic.snapshot(), topic.state.position)
            return
        pages = [change for change in missed if change.position <= position]
        reader.begin(
            b"".join(topic.encode(pages[at : at + PAGE]) for at in range(0, len(pages), PAGE)) or b": resumed\n\n"
        )

    async def _advance(self, topic: Topic) -> None:
        while topic.interest and topic.state is not None:
            pages = await self._read_on(topic.scope, topic.state.position)
            if pages:
                await self._tell(topic, pages)
            if not pages or len(pages[-1]) < PAGE:
                return

    async def _read_on(self, scope: tuple[UUID, UUID], position: int) -> list[Sequence[Change]]:
        """What came after a position, as far as it goes in one piece."""
        pages: list[Sequence[Change]] = []
        while len(pages) < _PAGES_MAX:
            page = await self._source.changes(*scope, after=position, limit=PAGE)
            if page:
                pages.append(page)
                position = page[-1].position
            if len(page) < PAGE:
                break
        return pages

    async def _tell(self, topic: Topic, pages: Sequence[Sequence[Change]]) -> None:
        """Take changes in, and tell the readers of them, some at a time.

        A thousand in one turn of the loop would be a tenth of a second in which no buyer is answered.
        """
        message = b"".join([topic.apply(page) for page in pages])
        position = pages[-1][-1].position
        # Whoever joins from here on begins with what all this has led to.
        readers = tuple(topic.readers)
        pause_s = min(_SENDING_S / _SENDING_SHARE, _ROUND_MAX_S / max(1, len(readers)))
        for first in range(0, len(readers), _AT_A_TIME):
            some = readers[first : first + _AT_A_TIME]
            topic.readers.difference_update([reader for reader in some if not reader.offer(message, position)])
            await asyncio.sleep(len(some) * pause_s)
