"""What events are made from: venues, layouts, the organisation's seating policy, and its members."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from uuid import UUID, uuid4

import msgspec
from aiohttp import web
from msgspec import Meta

from holdfast.engine.layout import Name, ZoneDocument, ZoneType
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.plan import LayoutDocument, Version
from holdfast.engine.policy import PolicyError, SeatingPolicy
from holdfast.engine.status import Status
from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import Refused, problem, reason_of
from holdfast.http.repeats import REPEAT_ERRORS, REPEAT_HEADERS, repeatable
from holdfast.http.stores import changing_database, database
from holdfast.http.tokens import Role
from holdfast.http.whole_response import WholeResponse
from holdfast.persistence.catalogue import CatalogueError, Missing, NoSuchEvent
from holdfast.persistence.layouts import (
    LayoutVersion,
    Venue,
    create_venue,
    end_membership,
    list_layouts,
    list_venues,
    load_layout,
    load_policy,
    save_layout,
    save_policy,
    set_tier,
    tiers_of,
)

ORGANIZERS = frozenset({Role.ORGANIZER, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})

# A hundred thousand seats with coordinates take about fifteen million bytes.
DOCUMENT_BYTES_MAX = 64 << 20

_EXAMPLE_LAYOUT = LayoutDocument(
    venue_id=UUID("1d4b0f3e-52c5-5a0c-9f5e-7b3a0f6f3c11"),
    name="Main Hall, standing",
    zones=(ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 300),),
)

endpoints = Endpoints()


class VenueRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A venue; without an id it gets one."""

    name: Name
    address: Annotated[str, Meta(max_length=1000)] = ""
    venue_id: UUID | None = None


class Layout(msgspec.Struct, frozen=True):
    """A version of a layout."""

    layout_id: UUID
    version: int
    layout: LayoutDocument


class LayoutSaved(msgspec.Struct, frozen=True):
    layout_id: UUID
    version: int


class VersionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Version | None = None


class Membership(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which tier somebody is a member."""

    tier: Name


class Member(msgspec.Struct, frozen=True):
    user_id: UUID
    tier: str


class Ended(msgspec.Struct, frozen=True):
    """Whose membership has ended."""

    user_id: UUID


@contextmanager
def documents_explained() -> Iterator[None]:
    """Tell the client which place of a document is wrong, what is missing, or what does not go together."""
    try:
        yield
    except (LayoutError, PolicyError) as error:
        raise Refused(problem("invalid_request", f"The body is not right: {error}.")) from None
    except NoSuchEvent:
        raise Refused(problem(reason_of(Status.EVENT_NOT_FOUND))) from None
    except Missing as error:
        raise Refused(problem("not_found", str(error))) from None
    except CatalogueError as error:
        raise Refused(problem("catalogue_conflict", str(error))) from None


@endpoints.post(
    "/api/admin/venues",
    summary="Add a venue",
    roles=ORGANIZERS,
    body=VenueRequest,
    replies={201: Venue},
    errors=("catalogue_conflict", "not_found", *REPEAT_ERRORS),
    example=VenueRequest("Main Hall", "1 Main Street"),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="catalogue",
)
@repeatable
async def add_venue(call: Call, body: VenueRequest) -> WholeResponse:
    venue = Venue(body.venue_id or uuid4(), body.name, body.address)
    with documents_explained():
        async with changing_database(call.app) as connection:
            await create_venue(connection, call.principal.organization_id, venue)
    return call.answer(201, venue)


@endpoints.get(
    "/api/admin/venues", summary="The venues", roles=ORGANIZERS, replies={200: tuple[Venue, ...]}, tag="catalogue"
)
async def venues(call: Call) -> web.StreamResponse:
    async with database(call.app) as connection:
        return call.answer(200, await list_venues(connection, call.principal.organization_id))


@endpoints.get(
    "/api/admin/venues/{venue}",
    summary="One venue",
    roles=ORGANIZERS,
    replies={200: Venue},
    errors=("not_found",),
    tag="catalogue",
)
async def venue(call: Call) -> web.StreamResponse:
    async with database(call.app) as connection:
        found = await list_venues(connection, call.principal.organization_id, call.ids["venue"])
    if not found:
        raise Refused(problem("not_found", "There is no such venue."))
    return call.answer(200, found[0])


@endpoints.put(
    "/api/admin/layouts/{layout}",
    summary="Save a layout as its next version",
    description="A version never changes: events that use it go on with it. Saving what the newest version says "
    "already changes nothing.",
    roles=ORGANIZERS,
    body=LayoutDocument,
    replies={200: LayoutSaved},
    errors=("not_found", "unknown_outcome"),
    example=_EXAMPLE_LAYOUT,
    body_bytes_max=DOCUMENT_BYTES_MAX,
    tag="catalogue",
)
async def put_layout(call: Call, body: LayoutDocument) -> web.StreamResponse:
    with documents_explained():
        async with changing_database(call.app) as connection:
            version = await save_layout(connection, call.principal.organization_id, call.ids["layout"], body)
    return call.answer(200, LayoutSaved(call.ids["layout"], version))


@endpoints.get(
    "/api/admin/layouts",
    summary="The versions of all layouts",
    roles=ORGANIZERS,
    replies={200: tuple[LayoutVersion, ...]},
    tag="catalogue",
)
async def layouts(call: Call) -> web.StreamResponse:
    async with database(call.app) as connection:
        return call.answer(200, await list_layouts(connection, call.principal.organization_id))


@endpoints.get(
    "/api/admin/layouts/{layout}",
    summary="One version of a layout, or the newest",
    roles=ORGANIZERS,
    query=VersionQuery,
    replies={200: Layout},
    errors=("not_found",),
    tag="catalogue",
)
async def layout(call: Call) -> web.StreamResponse:
    layout_id = call.ids["layout"]
    async with database(call.app) as connection:
        found = await load_layout(connection, call.principal.organization_id, layout_id, call.query.version)
    if found is None:
        raise Refused(problem("not_found", "There is no such layout, or no such version."))
    version, document = found
    return call.answer(200, Layout(layout_id, version, document))


@endpoints.get(
    "/api/admin/policies",
    summary="The organisation's seating policy",
    roles=ORGANIZERS,
    replies={200: SeatingPolicy},
    errors=("not_found",),
    tag="catalogue",
)
async def policy(call: Call) -> web.StreamResponse:
    async with database(call.app) as connection:
        found = await load_policy(connection, call.principal.organization_id)
    if found is None:
        raise Refused(problem("not_found", "The organisation has stored no policy: every event has its own."))
    return call.answer(200, found)


@endpoints.put(
    "/api/admin/policies",
    summary="Store the organisation's seating policy",
    description="For events that are made from a layout from now on. What is mandatory no event can have otherwise.",
    roles=ADMINS,
    body=SeatingPolicy,
    replies={200: SeatingPolicy},
    errors=("unknown_outcome",),
    example=SeatingPolicy(mandatory=frozenset({"enforce_accessibility_rules"})),
    tag="catalogue",
)
async def put_policy(call: Call, body: SeatingPolicy) -> web.StreamResponse:
    async with changing_database(call.app) as connection:
        await save_policy(connection, call.principal.organization_id, body)
    return call.answer(200, body)


@endpoints.get(
    "/api/admin/members/{user}",
    summary="A member",
    roles=ORGANIZERS,
    replies={200: Member},
    errors=("not_found",),
    tag="catalogue",
)
async def member(call: Call) -> web.StreamResponse:
    user_id = call.ids["user"]
    async with database(call.app) as connection:
        tiers = await tiers_of(connection, call.principal.organization_id, (user_id,))
    if user_id not in tiers:
        raise Refused(problem("not_found", "There is no such member."))
    return call.answer(200, Member(user_id, tiers[user_id]))


@endpoints.put(
    "/api/admin/members/{user}",
    summary="Make somebody a member of a tier",
    roles=ORGANIZERS,
    body=Membership,
    replies={200: Member},
    errors=("unknown_outcome",),
    example=Membership("voelgoed_vriendinne"),
    tag="catalogue",
)
async def put_member(call: Call, body: Membership) -> web.StreamResponse:
    async with changing_database(call.app) as connection:
        await set_tier(connection, call.principal.organization_id, call.ids["user"], body.tier)
    return call.answer(200, Member(call.ids["user"], body.tier))


@endpoints.delete(
    "/api/admin/members/{user}",
    summary="End a membership",
    roles=ORGANIZERS,
    replies={200: Ended},
    errors=("not_found", "unknown_outcome"),
    tag="catalogue",
)
async def delete_member(call: Call) -> web.StreamResponse:
    async with changing_database(call.app) as connection:
        ended = await end_membership(connection, call.principal.organization_id, call.ids["user"])
    if not ended:
        raise Refused(problem("not_found", "There is no such member."))
    return call.answer(200, Ended(call.ids["user"]))
