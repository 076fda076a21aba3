"""What organisers do with events: load them, list them, put them on sale and take them off."""

from uuid import UUID

import msgspec
from aiohttp import web

from holdfast.engine.backend import EventIds
from holdfast.engine.layout import CompiledEvent, EventDocument, EventState
from holdfast.engine.plan import EventPlan, LayoutReference, read_event
from holdfast.engine.status import Status
from holdfast.http.catalogue import DOCUMENT_BYTES_MAX, ORGANIZERS, documents_explained
from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import reasons_of
from holdfast.http.repeats import REPEAT_ERRORS, REPEAT_HEADERS, repeatable
from holdfast.http.stores import catalogue_key, database, event_desk
from holdfast.http.units import Notes
from holdfast.http.whole_response import WholeResponse
from holdfast.persistence.catalogue import EventSummary, SaveResult, list_events

endpoints = Endpoints()

_EXAMPLE_PLAN = EventPlan(
    event_id=UUID("9a0f3c52-6d1e-5f4b-8f2b-3c7d5e1a9b40"),
    name="Spring Gala",
    layout=LayoutReference(UUID("5b0c7f3a-1e52-5d0e-8a11-4f6a2d9c7e01"), 1),
    state=EventState.LIVE,
)
_ERRORS = ("catalogue_conflict", *reasons_of(Status.EVENT_NOT_FOUND), "unknown_outcome")


class EventSaved(msgspec.Struct, frozen=True):
    """An event as it is now; `result` is what the request has made of it."""

    event_id: UUID
    name: str
    state: EventState
    config_version: str
    result: SaveResult


class StateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: EventState
    notes: Notes = ""


@endpoints.post(
    "/api/admin/events",
    summary="Load an event",
    description="Saves an event and puts it into service, in the state it says: from a document with zones of its own, "
    "or from a plan, which names a version of a stored layout. Loaded again it may change its name, state, window, "
    "policy and capacities; zones and seats stay. 201 for a new event, 200 for one that was there.",
    roles=ORGANIZERS,
    body=(EventDocument, EventPlan),
    read_body=read_event,
    replies={201: EventSaved, 200: EventSaved},
    errors=("not_found", *_ERRORS, *REPEAT_ERRORS),
    example=_EXAMPLE_PLAN,
    body_bytes_max=DOCUMENT_BYTES_MAX,
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="catalogue",
)
@repeatable
async def load_event(call: Call, body: EventDocument | EventPlan) -> WholeResponse:
    with documents_explained():
        async with event_desk(call.app, call.actor()) as desk:
            result, event = await desk.load(call.principal.organization_id, body)
    return _answer(call, 201 if result is SaveResult.CREATED else 200, event, result)


@endpoints.get(
    "/api/admin/events",
    summary="The events",
    description="Every event of the organisation, oldest first.",
    roles=ORGANIZERS,
    replies={200: tuple[EventSummary, ...]},
    tag="catalogue",
)
async def events(call: Call) -> web.StreamResponse:
    async with database(call.app) as connection:
        return call.answer(200, await list_events(connection, call.principal.organization_id))


@endpoints.put(
    "/api/admin/events/{event}/state",
    summary="Put an event on sale, or take it off",
    description="Takes effect on the very next hold. `published` and `live` are on sale; what is held when an event "
    "closes can still be bought. `cancelled` and `archived` are for good.",
    roles=ORGANIZERS,
    body=StateRequest,
    replies={200: EventSaved},
    errors=_ERRORS,
    example=StateRequest(EventState.CLOSED, "The hall is flooded."),
    tag="catalogue",
)
async def put_event_state(call: Call, body: StateRequest) -> web.StreamResponse:
    with documents_explained():
        async with event_desk(call.app, call.actor(body.notes)) as desk:
            ids = EventIds(call.principal.organization_id, call.ids["event"])
            result, event = await desk.set_state(ids, body.state)
    return _answer(call, 200, event, result)


def _answer(call: Call, status: int, event: CompiledEvent, result: SaveResult) -> WholeResponse:
    # Others hear of the change; whoever made it must not wait for that.
    call.app[catalogue_key].forget(event.event_id)
    document = event.document
    return call.answer(status, EventSaved(event.event_id, document.name, document.state, event.version, result))
