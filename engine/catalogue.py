"""The compiled events of a process: loaded once, dropped when they change, and found again by the tag in a hold id."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from holdfast.engine.hold_ids import event_tag, tag_of
from holdfast.engine.layout import CompiledEvent

# How long an event that does not exist is not asked for again, and how often an organisation's events are listed.
ABSENT_S = 1.0
LIST_S = 1.0

Load = Callable[[UUID, UUID], Awaitable[CompiledEvent | None]]
ListIds = Callable[[UUID], Awaitable[Iterable[UUID]]]

# Ids as numbers, which are compared and looked up without the help of Python code.
_Key = tuple[int, int]


class Catalogue:
    """Compiled events by organisation and id, the least recently used forgotten first.

    What `load` and `list_ids` raise is raised to whoever waits for it. Many who wait for one event load it once.
    """

    def __init__(self, load: Load, list_ids: ListIds, *, max_events: int = 500) -> None:
        self._load = load
        self._list_ids = list_ids
        self._max_events = max_events
        self._events: OrderedDict[_Key, CompiledEvent] = OrderedDict()
        self._absent: OrderedDict[_Key, float] = OrderedDict()
        self._loading: dict[_Key, asyncio.Task[CompiledEvent | None]] = {}
        self._tags: dict[UUID, tuple[float, dict[bytes, list[UUID]]]] = {}

    def known(self, organization_id: UUID, event_id: UUID) -> CompiledEvent | None:
        """The event if it is in memory; None says nothing."""
        key = (organization_id.int, event_id.int)
        found = self._events.get(key)
        if found is not None:
            self._events.move_to_end(key)
        return found

    async def get(self, organization_id: UUID, event_id: UUID) -> CompiledEvent | None:
        """The event, or None if the organisation has none with this id."""
        found = self.known(organization_id, event_id)
        if found is not None:
            return found
        if self._absent.get((organization_id.int, event_id.int), 0.0) > time.monotonic():
            return None
        return await self._fetch(organization_id, event_id)

    async def reload(self, event: CompiledEvent) -> CompiledEvent | None:
        """The event as it is now, after a script has called this version of it stale."""
        found = self._events.get((event.organization_id.int, event.event_id.int))
        if found is not None and found.version != event.version:
            return found
        return await self._fetch(event.organization_id, event.event_id)

    def forget(self, event_id: UUID) -> None:
        """An event has changed or come into being: load it anew when it is next asked for."""
        for known in (self._events, self._absent, self._loading):
            for key in [key for key in known if key[1] == event_id.int]:
                del known[key]
        self._tags.clear()

    def forget_all(self) -> None:
        """Changes may have been missed."""
        self._events.clear()
        self._absent.clear()
        self._loading.clear()
        self._tags.clear()

    async def events_of(self, organization_id: UUID, hold_id: UUID) -> tuple[UUID, ...]:
        """The events of an organisation that a hold id may belong to: one, none, or hardly ever two."""
        tag = tag_of(hold_id)
        listed_at, tags = self._tags.get(organization_id, (-LIST_S, {}))
        if tag not in tags and time.monotonic() - listed_at >= LIST_S:
            tags = {}
            for event_id in await self._list_ids(organization_id):
                tags.setdefault(event_tag(organization_id, event_id), []).append(event_id)
            self._tags[organization_id] = time.monotonic(), tags
        return tuple(tags.get(tag, ()))

    async def _fetch(self, organization_id: UUID, event_id: UUID) -> CompiledEvent | None:
        key = (organization_id.int, event_id.int)
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.create_task(self._load_into(organization_id, event_id))
        # One who gives up waiting must not take the event away from the others.
        return await asyncio.shield(loading)

    async def _load_into(self, organization_id: UUID, event_id: UUID) -> CompiledEvent | None:
        key = (organization_id.int, event_id.int)
        this = asyncio.current_task()
        try:
            event = await self._load(organization_id, event_id)
        finally:
            current = self._loading.get(key) is this
            if current:
                del self._loading[key]
        if not current:
            # It changed while it was being loaded; whoever asks next loads the change.
            return event
        if event is None:
            self._absent[key] = time.monotonic() + ABSENT_S
            _shorten(self._absent, self._max_events)
        else:
            self._events[key] = event
            _shorten(self._events, self._max_events)
        return event


def _shorten(known: OrderedDict[_Key, CompiledEvent] | OrderedDict[_Key, float], most: int) -> None:
    while len(known) > most:
        known.popitem(last=False)
