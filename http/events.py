"""What everybody of an organisation may know of its events: facts, how full they are, and their seats."""

from collections.abc import AsyncIterator
from datetime import date, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from holdfast.engine.errors import BackendError, Unavailable
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.status import Status
from holdfast.http.endpoints import ANYONE, Call, Endpoints
from holdfast.http.errors import Refused, problem, reasons_of
from holdfast.http.event_layouts import layouts_key
from holdfast.http.holding import find_event
from holdfast.http.occupancy import Occupied
from holdfast.http.reserve import find_seat
from holdfast.http.seat_lists import SeatList, SeatLists, SeatMap, encode_map, etag_of, without_separators
from holdfast.http.stores import asking_postgres, database, holds_key, postgres_key
from holdfast.persistence.feed import Feed
from holdfast.persistence.occupancy import Figures, Occupancy, OccupancyCache
from holdfast.persistence.pool import SingleQueries
from holdfast.persistence.sql import query

endpoints = Endpoints()
occupancy_key = web.AppKey("occupancy", OccupancyCache)
seat_lists_key = web.AppKey("seat_lists", SeatLists)

_NOT_FOUND = reasons_of(Status.EVENT_NOT_FOUND)


class EventZone(msgspec.Struct, frozen=True):
    """A zone; one without seats has places."""

    zone_id: str
    name: str
    zone_type: str
    capacity: int
    seats: int


class EventFacts(msgspec.Struct, frozen=True):
    """An event. Without a start or an end, sales are not limited on that side. `layout_version` stays the same until
    the layout changes."""

    event_id: UUID
    name: str
    state: str
    sale_start: datetime | None
    sale_end: datetime | None
    days: tuple[date, ...]
    config_version: str
    layout_version: str
    zones: tuple[EventZone, ...]
    totals: Occupied


class ZoneOccupied(Occupied, frozen=True, kw_only=True):
    """How full a zone is."""

    zone_id: str
    name: str


class EventOccupied(Occupied, frozen=True, kw_only=True):
    """How full an event is, and each of its zones. At most ten seconds old."""

    event_id: UUID
    zones: tuple[ZoneOccupied, ...]


class SeatFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A seat as it is committed, and until when it is held, if it is."""

    seat_id: str
    event_id: UUID
    zone_id: str
    row: str
    number: int
    category: str
    status: str
    held_until: datetime | None


class SeatsForm(StrEnum):
    LIST = "list"
    MAP = "map"


class SeatsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In which form to give the seats."""

    format: SeatsForm = SeatsForm.LIST


async def reading_caches(app: web.Application) -> AsyncIterator[None]:
    """What is remembered between reads."""
    app[occupancy_key] = OccupancyCache()
    app[seat_lists_key] = SeatLists()
    yield


@endpoints.get(
    "/api/events/{event}",
    summary="An event",
    description="Its name, state, sale window and zones, and how full it is.",
    roles=ANYONE,
    replies={200: EventFacts},
    errors=_NOT_FOUND,
    tag="events",
)
async def event_facts(call: Call) -> web.StreamResponse:
    event = await find_event(call)
    counted = await _count(call, event)
    document = event.document
    return call.answer(
        200,
        EventFacts(
            event_id=event.event_id,
            name=document.name,
            state=document.state,
            sale_start=document.sale_start,
            sale_end=document.sale_end,
            days=document.days,
            config_version=event.version,
            layout_version=call.app[layouts_key].of(event).version,
            zones=tuple(
                EventZone(zone.zone_id, zone.name, zone.zone_type, zone.capacity, len(zone.seats))
                for zone in document.zones
            ),
            totals=Occupied.of(counted.total),
        ),
    )


@endpoints.get(
    "/api/events/{event}/occupancy",
    summary="How full an event is",
    roles=ANYONE,
    replies={200: EventOccupied},
    errors=_NOT_FOUND,
    tag="events",
)
async def event_occupancy(call: Call) -> web.StreamResponse:
    event = await find_event(call)
    counted = await _count(call, event)
    zones = tuple(
        ZoneOccupied(zone_id=zone.zone_id, name=zone.name, **_figures(zone.figures)) for zone in counted.zones
    )
    return call.answer(200, EventOccupied(event_id=event.event_id, zones=zones, **_figures(counted.total)))


@endpoints.get(
    "/api/events/{event}/seats",
    summary="All seats of an event",
    description="`format=map` gives a letter for each seat, in the same order, which is small enough to ask for often. "
    "The ETag stays the same until a seat changes.",
    roles=ANYONE,
    query=SeatsQuery,
    replies={200: (SeatList, SeatMap), 304: None},
    errors=_NOT_FOUND,
    headers={"If-None-Match": "The ETag of the seats that you have. 304 says that they are still so."},
    reply_headers={"ETag": "Stays the same until a seat changes."},
    tag="events",
)
async def event_seats(call: Call) -> web.StreamResponse:
    event = await find_event(call)
    letters = await _read_letters(call, event)
    form = call.query.format
    if unchanged := call.answer_unchanged(etag_of(event, letters, form)):
        return unchanged
    if form is SeatsForm.MAP:
        return call.answer_encoded(200, encode_map(event, letters))
    return call.answer_encoded(200, call.app[seat_lists_key].encode(event, letters))


@endpoints.get(
    "/api/events/{event}/seats/{seat}",
    summary="One seat",
    description="Its status, and until when it is held, if it is; never by whom.",
    roles=ANYONE,
    texts=("seat",),
    replies={200: SeatFacts},
    errors=reasons_of(Status.EVENT_NOT_FOUND, Status.SEAT_NOT_FOUND),
    tag="events",
)
async def event_seat(call: Call) -> web.StreamResponse:
    event = await find_event(call)
    seat_id, seat = find_seat(event, call.request.match_info["seat"])
    async with database(call.app) as connection:
        row = await connection.fetchrow(query("read_seat"), event.organization_id, event.event_id, seat_id)
    if row is None:
        raise Refused(problem("seat_not_found"))
    document = event.seat_at[seat.value]
    return call.answer(
        200,
        SeatFacts(
            seat_id=seat_id,
            event_id=event.event_id,
            zone_id=event.zones[seat.zone].document.zone_id,
            row=document.row,
            number=document.number,
            category=document.category,
            status=row["status"],
            held_until=row["held_until"],
        ),
    )


async def _count(call: Call, event: CompiledEvent) -> Occupancy:
    with asking_postgres():
        queries = SingleQueries(call.app[postgres_key])
        return await call.app[occupancy_key].get(queries, event.organization_id, event.event_id)


async def _read_letters(call: Call, event: CompiledEvent) -> bytes:
    """A letter for each seat, from whoever decides on them; from Postgres where nobody does, or nobody answers."""
    try:
        reading = await call.app[holds_key].read_event(event.organization_id, event.event_id, want_map=True)
    except BackendError:
        reading = None
    if reading is not None and reading.status is Status.DONE:
        letters = without_separators(reading.map)
    else:
        with asking_postgres():
            state = await Feed(call.app[postgres_key]).state(event.organization_id, event.event_id)
        letters = state.map
    if len(letters) != len(event.seats):
        raise Unavailable("the event is being loaded")
    return letters


def _figures(figures: Figures) -> dict[str, Any]:
    return msgspec.structs.asdict(Occupied.of(figures))
