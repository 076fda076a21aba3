"""The plan of an event for a page: its zones, seats and prices, which stay the same while seats come and go.

What changes with every hold is in the event's seats; a page asks for the plan once and keeps it.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from datetime import date
from hashlib import blake2b
from uuid import UUID

import msgspec
from aiohttp import web

from holdfast.engine.layout import CompiledEvent, SeatDocument, SeatGroupDocument, ZoneDocument
from holdfast.engine.status import Status
from holdfast.http.endpoints import ANYONE, REVALIDATED, Call, Endpoints
from holdfast.http.errors import reasons_of
from holdfast.http.holding import find_event

endpoints = Endpoints()

FOR_GOOD = "private, max-age=31536000, immutable"


class PlannedZone(msgspec.Struct, frozen=True, omit_defaults=True):
    """A zone with its seats, the best row first; one without seats has places. Who is on its list is not told."""

    zone_id: str
    name: str
    zone_type: str
    capacity: int
    access_mode: str
    membership_tier: str | None = None
    pricing_rule_id: str | None = None
    seats: tuple[SeatDocument, ...] = ()

    @classmethod
    def of(cls, zone: ZoneDocument) -> "PlannedZone":
        return cls(
            zone_id=zone.zone_id,
            name=zone.name,
            zone_type=zone.zone_type,
            capacity=zone.capacity,
            access_mode=zone.access_mode,
            membership_tier=zone.membership_tier,
            pricing_rule_id=zone.pricing_rule_id,
            seats=zone.seats,
        )


class EventLayout(msgspec.Struct, frozen=True):
    """What a page draws. The seats are in the order of the event's seat map; a seat is the same on all days."""

    event_id: UUID
    days: tuple[date, ...]
    zones: tuple[PlannedZone, ...]
    seat_groups: tuple[SeatGroupDocument, ...]


class EncodedLayout(msgspec.Struct, frozen=True):
    """A layout as it is sent. Its version is a digest of that."""

    version: str
    content: bytes


class LayoutQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`version` is the event's `layout_version`, where the answer may be kept for good."""

    version: str = ""


class EventLayouts:
    """Encodes the layouts of events, and remembers them for as long as the event stays the same."""

    def __init__(self, max_events: int = 20) -> None:
        self._max_events = max_events
        self._encoded: OrderedDict[str, EncodedLayout] = OrderedDict()

    def of(self, event: CompiledEvent) -> EncodedLayout:
        found = self._encoded.get(event.version)
        if found is None:
            found = self._encoded[event.version] = _encode(event)
            while len(self._encoded) > self._max_events:
                self._encoded.popitem(last=False)
        self._encoded.move_to_end(event.version)
        return found


layouts_key = web.AppKey("event_layouts", EventLayouts)


async def event_layouts(app: web.Application) -> AsyncIterator[None]:
    """What is remembered between reads."""
    app[layouts_key] = EventLayouts()
    yield


@endpoints.get(
    "/api/events/{event}/layout",
    summary="The plan of an event",
    description="Zones, seats and where they stand: what does not change when a seat is held or sold. Asked for with "
    "the `layout_version` of the event it may be kept for good, otherwise until the ETag changes.",
    roles=ANYONE,
    query=LayoutQuery,
    replies={200: EventLayout, 304: None},
    errors=reasons_of(Status.EVENT_NOT_FOUND),
    headers={"If-None-Match": "The ETag of the layout that you have. 304 says that it is still the one."},
    reply_headers={"ETag": "Stays the same until the layout changes."},
    tag="events",
)
async def event_layout(call: Call) -> web.StreamResponse:
    layout = call.app[layouts_key].of(await find_event(call))
    kept = FOR_GOOD if call.query.version == layout.version else REVALIDATED
    return call.answer_unchanged(f'"{layout.version}"', kept) or call.answer_encoded(200, layout.content)


def _encode(event: CompiledEvent) -> EncodedLayout:
    document = event.document
    zones = tuple(PlannedZone.of(zone) for zone in document.zones)
    content = msgspec.json.encode(EventLayout(event.event_id, document.days, zones, document.seat_groups))
    return EncodedLayout(blake2b(content, digest_size=12).hexdigest(), content)
