"""Holds of several seats and places, and what their owners do with them."""

from hashlib import blake2b
from uuid import UUID, uuid4

import msgspec
from aiohttp import web

from holdfast.engine.acks import Ack
from holdfast.engine.backend import Holder, HoldReply, HoldsReply, StoredHold
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.http.counter_offers import is_counter_offer, may_be_countered, offer_instead
from holdfast.http.endpoints import BUYERS, Call, Endpoints
from holdfast.http.errors import Refused, problem, reason_of, reasons_of
from holdfast.http.hold_views import (
    HeldQuantity,
    HeldSeat,
    HoldView,
    companion_seat_ids,
    describe_split,
    held_quantities,
    held_seats,
    hold_view,
)
from holdfast.http.holding import (
    HOLD_ERRORS,
    LIMIT_HEADERS,
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
from holdfast.http.wishes import HoldRequest, Wish, find_wish
from holdfast.http.zone_access import ACCESS_ERRORS, admit, entitled

endpoints = Endpoints()

# How a hold has ended, by the state that is on record.
_ENDED = {"s": Status.HOLD_SOLD, "r": Status.HOLD_RELEASED, "x": Status.HOLD_EXPIRED}


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
    "allows it; `message` says how. Wheelchair and companion seats are given only to who asks for `accessible` "
    "ones or names them; `categories` leaves out other seats. Holding a wheelchair seat keeps its free companion seats "
    "for you. What you hold already is "
    "not held again: the new hold covers the rest. Where the "
    "system chooses the seats of an event, named ones are answered with the best as many of their zones. With "
    "`counter_offer` a request for seats that are not to be had names the nearest free block of as many, in a zone of "
    "the same type and price, or holds it: a 409 with `counter_offer`, or a 201 with `counter_offer` true.",
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
    wish = find_wish(event, body)
    state_limits(call, event)
    holder, ack = make_holder(call, event, body, cart=body.cart_token, source=body.source), choose_ack(call, event)
    proposed: tuple[Pair, ...] = ()

    async def attempt(event: CompiledEvent) -> HoldReply:
        nonlocal proposed
        proposed = ()
        allowed = await _restrict(call, event, wish, body)
        await admit(call, event, allowed.units, body.guests)
        reply = await _ask(call, event, allowed.clustered(event), holder, ack)
        if body.counter_offer is None or not may_be_countered(reply):
            return reply
        offer = await offer_instead(
            call, event, wish.clustered(event), holder, kind=body.counter_offer, guests=body.guests, ack=ack
        )
        if offer is not None and offer.status is Status.OFFERED:
            proposed = offer.seats
        elif offer is not None and (offer.status.succeeded or offer.status is Status.STALE_CONFIG):
            return offer
        return reply

    event, reply = await despite_changes(call, event, attempt)
    if not reply.status.succeeded or reply.hold_id is None:
        return refuse_reply(call, event, reply, seat_ids=body.seats, proposed=proposed)
    countered = is_counter_offer(wish.clustered(event), reply)
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
            counter_offer=countered or None,
            companion_seat_ids=companion_seat_ids(event, reply.seats),
            message=_say(event, wish, reply, countered=countered),
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


async def _restrict(call: Call, event: CompiledEvent, wish: Wish, body: HoldRequest) -> Wish:
    """The wish without zones that nobody named and that are not for the caller, unless none is."""
    if not wish.any_zone:
        return wish
    zones = await entitled(call, event, wish.zones, wish.count, body.guests)
    return msgspec.structs.replace(wish, zones=tuple(zones) or wish.zones)


async def _ask(call: Call, event: CompiledEvent, wish: Wish, holder: Holder, ack: Ack) -> HoldReply:
    holds = call.app[holds_key]
    if wish.count:
        return await holds.allocate_seats(
            event,
            holder,
            zones=wish.zones,
            count=wish.count,
            accessible=wish.accessible,
            categories=wish.categories,
            ack=ack,
        )
    return await holds.hold_seats(event, holder, seats=wish.seats, quantities=wish.quantities, ack=ack)


def _say(event: CompiledEvent, wish: Wish, reply: HoldReply, *, countered: bool) -> str:
    """What to tell a buyer: that these are other seats than were asked for, or that the group does not sit together."""
    _, left_s = time_left(reply.until_ms, reply.now_ms)
    if reply.status is Status.ALREADY_HELD:
        return f"You already hold this, for {say_time(left_s)} more."
    reserved = f"Reserved for {say_time(left_s)}. Proceed to checkout."
    if countered:
        return f"What you asked for is not to be had. These are the nearest seats that are free. {reserved}"
    split = describe_split(event, reply.seats) if wish.clustered(event).count else ""
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
