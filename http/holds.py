"""Holds of several seats and places, and what their owners do with them."""

from collections import Counter
from hashlib import blake2b
from typing import Annotated
from uuid import UUID, uuid4

import msgspec
from aiohttp import web
from msgspec import Meta

from holdfast.engine.backend import HoldReply, HoldsReply, StoredHold
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.http.endpoints import BUYERS, Call, Endpoints
from holdfast.http.errors import Refused, problem, reason_of, reasons_of
from holdfast.http.hold_views import (
    HeldQuantity,
    HeldSeat,
    HoldView,
    describe_split,
    held_quantities,
    held_seats,
    hold_view,
)
from holdfast.http.holding import (
    HOLD_ERRORS,
    LIMIT_HEADERS,
    CartToken,
    Source,
    choose_ack,
    despite_changes,
    durability,
    find_event,
    make_holder,
    refuse_reply,
    say_time,
    state_limits,
    time_left,
)
from holdfast.http.stores import catalogue_key, holds_key, stored_holds_key
from holdfast.http.units import Id, find_seats, find_zone
from holdfast.http.zone_access import ACCESS_ERRORS, admit, offer_selection

endpoints = Endpoints()

# How a hold has ended, by the state that is on record.
_ENDED = {"s": Status.HOLD_SOLD, "r": Status.HOLD_RELEASED, "x": Status.HOLD_EXPIRED}

_UNITS_MAX = 100
_ZONES_MAX = 100

Units = Annotated[int, Meta(ge=1, le=_UNITS_MAX)]


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Places in a general-admission zone."""

    zone_id: Id
    quantity: Units


class BestAvailable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best seats that are free: next to each other, and leaving nobody alone, where that is possible.

    Name a zone, or zones in the order in which you prefer them: all seats are in one of them.
    """

    count: Units
    zone_id: Id | None = None
    zones: Annotated[
        tuple[Id, ...], Meta(max_length=_ZONES_MAX, description="zones with seats, in order of preference")
    ] = ()


class HoldRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to hold, all or nothing: seats and quantities, or the best available."""

    seats: Annotated[tuple[Id, ...], Meta(max_length=_UNITS_MAX)] = ()
    quantities: Annotated[tuple[Quantity, ...], Meta(max_length=_UNITS_MAX)] = ()
    best_available: BestAvailable | None = None
    source: Source = Source.WEB
    cart_token: CartToken = ""
    guests: Annotated[
        tuple[UUID, ...], Meta(max_length=_UNITS_MAX, description="for whom the other places of a restricted zone are")
    ] = ()


class HoldList(msgspec.Struct, frozen=True):
    """The live holds of the caller."""

    event_id: UUID
    holds: tuple[HoldView, ...]


class Released(msgspec.Struct, frozen=True):
    """What a release gave back. `status` is `expired` when the hold's time was over before."""

    status: str
    hold_id: UUID
    released_seats: tuple[HeldSeat, ...]
    released_quantities: tuple[HeldQuantity, ...]
    released_count: int
    message: str
    durability: str


@endpoints.post(
    "/api/events/{event}/holds",
    summary="Hold several seats, places, or the best available",
    description="All or nothing. Name seats and quantities, or ask for the best available seats of a zone, or of "
    "zones in order of preference. A group that cannot sit together is split between neighbouring rows, if the event "
    "allows it; `message` says how. What you hold already is not held again: the new hold covers the rest.",
    roles=BUYERS,
    body=HoldRequest,
    replies={201: HoldView, 200: HoldView},
    errors=(*HOLD_ERRORS, *ACCESS_ERRORS, reason_of(Status.NO_AVAILABLE_SEATS)),
    example={"best_available": {"zone_id": "ad0aa0ea-9d19-5b4c-9f0e-1b6a4a4e3b0a", "count": 2}},
    idempotency_key=True,
    prefer=True,
    reply_headers=LIMIT_HEADERS,
)
async def hold(call: Call, body: HoldRequest) -> web.StreamResponse:
    event = await find_event(call)
    wish = _find_wish(event, body)
    state_limits(call, event)
    holder, ack = make_holder(call, event, body, cart=body.cart_token, source=body.source), choose_ack(call, event)

    async def attempt(event: CompiledEvent) -> HoldReply:
        if body.seats:
            offer_selection(event)
        await admit(call, event, wish.units, body.guests)
        holds = call.app[holds_key]
        if wish.count:
            return await holds.allocate_seats(event, holder, zones=wish.zones, count=wish.count, ack=ack)
        return await holds.hold_seats(event, holder, seats=wish.seats, quantities=wish.quantities, ack=ack)

    event, reply = await despite_changes(call, event, attempt)
    if not reply.status.succeeded or reply.hold_id is None:
        return refuse_reply(call, event, reply, seat_ids=body.seats)
    held_until, left_s = time_left(reply.until_ms, reply.now_ms)
    return call.answer(
        200 if reply.status is Status.ALREADY_HELD else 201,
        HoldView(
            hold_id=reply.hold_id,
            event_id=event.event_id,
            status="held",
            seats=held_seats(event, reply.seats),
            quantities=held_quantities(event, reply.quantities),
            held_until=held_until,
            held_until_unix=reply.until_ms // 1000,
            expires_in_seconds=left_s,
            cart_token=body.cart_token or None,
            message=_say(reply, describe_split(event, reply.seats) if wish.count else "", left_s),
            durability=durability(reply.position, ack),
        ),
    )


@endpoints.get(
    "/api/events/{event}/holds",
    summary="Your live holds of an event",
    roles=BUYERS,
    replies={200: HoldList},
    errors=reasons_of(Status.EVENT_NOT_FOUND, Status.FENCED),
)
async def list_holds(call: Call) -> web.StreamResponse:
    event, principal = await find_event(call), call.principal
    reading = await call.app[holds_key].read_holds(event.organization_id, event.event_id, user_id=principal.user_id)
    if not reading.status.succeeded:
        return call.refuse(problem(reason_of(reading.status)))
    live = (stored for stored in reading.holds if stored.ends_ms > reading.now_ms)
    return call.answer(
        200, HoldList(event.event_id, tuple(hold_view(event, stored, reading.now_ms) for stored in live))
    )


@endpoints.get(
    "/api/holds/{hold}",
    summary="One of your holds",
    description="Also one that has ended, however long ago: `status` is `held`, `converted`, `cancelled` or `expired`.",
    roles=BUYERS,
    replies={200: HoldView},
    errors=reasons_of(Status.HOLD_NOT_FOUND, Status.FENCED),
)
async def show_hold(call: Call) -> web.StreamResponse:
    event, stored, now_ms = await find_hold(call)
    return call.answer(200, hold_view(event, stored, now_ms))


@endpoints.post(
    "/api/holds/{hold}/extend",
    summary="Keep a hold for longer",
    description="Adds the event's extension to the end of the hold, up to the longest time that the event allows.",
    roles=BUYERS,
    replies={200: HoldView},
    errors=(
        *reasons_of(
            Status.HOLD_NOT_FOUND,
            Status.HOLD_SOLD,
            Status.HOLD_RELEASED,
            Status.HOLD_EXPIRED,
            Status.HOLD_IN_CHECKOUT,
            Status.EXTENSION_LIMIT,
            Status.FENCED,
        ),
        "unknown_outcome",
    ),
    idempotency_key=True,
    prefer=True,
)
async def extend(call: Call) -> web.StreamResponse:
    event, stored, _ = await find_hold(call)
    policy, ack = event.document.policy, choose_ack(call, event)
    reply = await call.app[holds_key].extend_holds(
        event,
        [stored.hold_id],
        user_id=call.principal.user_id,
        key=_extension_key(call),
        extension_ms=policy.checkout_extension_minutes * 60_000,
        total_ms=policy.max_hold_total_minutes * 60_000,
        meta=call.caller().meta(),
        ack=ack,
    )
    if not reply.status.succeeded:
        return call.refuse(problem(reason_of(_outcome(reply, stored))))
    extended = StoredHold(stored.hold_id, reply.ends_ms[0], stored.record)
    view = hold_view(event, extended, reply.now_ms)
    return call.answer(200, msgspec.structs.replace(view, durability=durability(reply.position, ack)))


@endpoints.delete(
    "/api/holds/{hold}",
    summary="Give a hold back",
    description="Releasing again changes nothing. What was sold, or is in a checkout, is not released.",
    roles=BUYERS,
    replies={200: Released},
    errors=(
        *reasons_of(Status.HOLD_NOT_FOUND, Status.HOLD_SOLD, Status.HOLD_IN_CHECKOUT, Status.FENCED),
        "unknown_outcome",
    ),
    prefer=True,
)
async def release(call: Call) -> web.StreamResponse:
    event, stored, _ = await find_hold(call)
    ack = choose_ack(call, event)
    reply = await call.app[holds_key].release_holds(
        event,
        [stored.hold_id],
        user_id=call.principal.user_id,
        reason="user_cancelled",
        meta=call.caller().meta(),
        ack=ack,
    )
    outcome = _outcome(reply, stored)
    ended = outcome in (Status.HOLD_RELEASED, Status.HOLD_EXPIRED)
    if not outcome.succeeded and not ended:
        return call.refuse(problem(reason_of(outcome)))
    # What a release meets past its time is expired by it, and then is no doing of the user.
    freed_seats, freed_quantities = (reply.seats, reply.quantities) if outcome.succeeded else ((), ())
    return call.answer(
        200,
        Released(
            status="expired" if outcome is Status.HOLD_EXPIRED else "cancelled",
            hold_id=stored.hold_id,
            released_seats=held_seats(event, freed_seats),
            released_quantities=held_quantities(event, freed_quantities),
            released_count=len(freed_seats) + sum(quantity for _, quantity in freed_quantities),
            message="The hold had ended already." if ended else "Your seats are available to others again.",
            durability=durability(reply.position, ack),
        ),
    )


async def find_hold(call: Call) -> tuple[CompiledEvent, StoredHold, int]:
    """The caller's hold in the path, its event, and the clock that ends it. Raises Refused if there is none.

    The engine forgets holds some time after their end, and events that are not in service; Postgres forgets nothing.
    """
    principal, hold_id = call.principal, call.ids["hold"]
    catalogue = call.app[catalogue_key]
    event_ids = await catalogue.events_of(principal.organization_id, hold_id)
    for event_id in event_ids:
        event = await catalogue.get(principal.organization_id, event_id)
        if event is None:
            continue
        reading = await call.app[holds_key].read_holds(
            principal.organization_id, event_id, user_id=principal.user_id, hold_ids=[hold_id]
        )
        if not reading.status.succeeded and reading.status is not Status.EVENT_NOT_FOUND:
            raise Refused(problem(reason_of(reading.status)))
        for stored in reading.holds:
            return event, stored, reading.now_ms
    if event_ids:
        found = await call.app[stored_holds_key].find(principal.organization_id, principal.user_id, hold_id)
        event = await catalogue.get(principal.organization_id, found.event_id) if found else None
        if found and event:
            return event, found.hold, found.now_ms
    raise Refused(problem(reason_of(Status.HOLD_NOT_FOUND)))


class _Wish(msgspec.Struct, frozen=True):
    """What a request asks for, as the engine names it."""

    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()
    zones: tuple[int, ...] = ()
    count: int = 0

    @property
    def units(self) -> dict[int, int]:
        """How many seats and places are wanted in each zone; if the engine is to choose, in any of them."""
        found = Counter(seat.zone for seat in self.seats)
        for zone, quantity in self.quantities:
            found[zone] += quantity
        for zone in self.zones:
            found[zone] += self.count
        return found


def _find_wish(event: CompiledEvent, body: HoldRequest) -> _Wish:
    if (body.best_available is None) == (not body.seats and not body.quantities):
        raise Refused(problem("invalid_request", "Ask for seats and quantities, or for the best available."))
    if body.best_available is not None:
        return _find_best(event, body.best_available)
    seats = find_seats(event, body.seats)
    return _Wish(seats, tuple(Pair(find_zone(event, wish.zone_id), wish.quantity) for wish in body.quantities))


def _find_best(event: CompiledEvent, best: BestAvailable) -> _Wish:
    if (best.zone_id is None) == (not best.zones):
        raise Refused(problem("invalid_request", "Ask for the best available of zone_id, or of zones."))
    zones = tuple(find_zone(event, each) for each in best.zones or (best.zone_id or "",))
    if len(set(zones)) < len(zones):
        raise Refused(problem("invalid_request", "A zone is named twice."))
    seatless = [zone for zone in zones if not event.zones[zone].document.zone_type.seated]
    if not seatless:
        return _Wish(zones=zones, count=best.count)
    if len(zones) > 1:
        names = tuple(event.zones[zone].document.zone_id for zone in seatless)
        raise Refused(problem("invalid_request", "Zones to choose from must have seats.", zones=names))
    # One place of a general-admission zone is as good as another.
    return _Wish(quantities=(Pair(zones[0], best.count),))


def _say(reply: HoldReply, split: str, left_s: int) -> str:
    """What to tell a buyer about a hold, and about a group that does not sit together."""
    if reply.status is Status.ALREADY_HELD:
        return f"You already hold this, for {say_time(left_s)} more."
    reserved = f"Reserved for {say_time(left_s)}. Proceed to checkout."
    return f"Your group is split: {split}. {reserved}" if split else reserved


def _extension_key(call: Call) -> str:
    """What the script knows this request by: the client's key, which may be longer, or one that nobody else has."""
    if not call.idempotency_key:
        return uuid4().hex
    return blake2b(call.idempotency_key.encode(), digest_size=16).hexdigest()


def _outcome(reply: HoldsReply, stored: StoredHold) -> Status:
    """What the engine says became of a hold; one that it has forgotten has ended as it is on record."""
    if reply.status in (Status.HOLD_NOT_FOUND, Status.EVENT_NOT_FOUND):
        return _ENDED.get(stored.record.state, Status.HOLD_NOT_FOUND)
    return reply.status
