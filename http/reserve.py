"""`POST /api/events/{event}/seats/{seat}/reserve`: hold one seat."""

import time
from datetime import datetime
from uuid import UUID

import msgspec
from aiohttp import web

from holdfast.engine.backend import HoldReply
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.engine.telemetry import HOT, REDIS, count_hold
from holdfast.http.endpoints import BUYERS, Call, Endpoints, parse_uuid
from holdfast.http.errors import Refused, problem, reason_of
from holdfast.http.hold_views import companion_seat_ids
from holdfast.http.holding import (
    HOLD_ERRORS,
    LIMIT_HEADERS,
    CartToken,
    Source,
    choose_ack,
    despite_changes,
    durability,
    find_event,
    is_on_sale,
    make_holder,
    refuse_hold,
    refuse_reply,
    say_time,
    state_limits,
    time_left,
)
from holdfast.http.stores import holds_key, hot_cache_key
from holdfast.http.zone_access import ACCESS_ERRORS, admit, offer_selection

endpoints = Endpoints()


class ReserveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reserve."""

    source: Source = Source.WEB
    cart_token: CartToken = ""


class Reserved(msgspec.Struct, frozen=True, omit_defaults=True):
    """A seat that is held for the caller. `durability` says where that is known for sure.

    `companion_seat_ids` are the companion seats of a wheelchair seat, kept for the caller while they are free.
    """

    hold_id: UUID
    seat_id: str
    event_id: UUID
    block_name: str
    row: str
    seat_number: str
    status: str
    held_until: datetime
    held_until_unix: int
    expires_in_seconds: int
    message: str
    durability: str
    companion_seat_ids: tuple[str, ...] = ()


@endpoints.post(
    "/api/events/{event}/seats/{seat}/reserve",
    summary="Hold one seat",
    description="Reserves a seat for as long as the event's policy says. 201 for a new hold, 200 if you hold the seat "
    "already. A 409 says when the seat may come free; there is no use in trying again before.",
    roles=BUYERS,
    texts=("seat",),
    body=ReserveRequest,
    replies={201: Reserved, 200: Reserved},
    errors=(*HOLD_ERRORS, *ACCESS_ERRORS),
    example=ReserveRequest(),
    idempotency_key=True,
    prefer=True,
    reply_headers=LIMIT_HEADERS,
)
async def reserve(call: Call, body: ReserveRequest) -> web.StreamResponse:
    event = await find_event(call)
    seat_id, seat = find_seat(event, call.request.match_info["seat"])
    offer_selection(event)
    await admit(call, event, {seat.zone: 1})
    state_limits(call, event)
    # A repeat has to be answered with the first result, which only the script knows.
    if not call.idempotency_key and is_on_sale(event):
        now_ms = int(time.time() * 1000)
        taken = call.app[hot_cache_key].taken(
            event.organization_id, event.event_id, seat.value, user_id=call.principal.user_id, now_ms=now_ms
        )
        if taken is not None:
            status = Status.SEAT_HELD_BY_ANOTHER_USER if taken.until_ms > 0 else Status.SEAT_NOT_AVAILABLE
            count_hold(status, REDIS, HOT, time.time() - now_ms / 1000)
            return refuse_hold(
                call, event, status, seat_ids=(seat_id,), until_ms=taken.until_ms, now_ms=now_ms, seats=(seat,)
            )
    holder, ack = make_holder(call, event, body, cart=body.cart_token, source=body.source), choose_ack(call, event)

    async def attempt(current: CompiledEvent) -> HoldReply:
        if current is not event:
            offer_selection(current)
            await admit(call, current, {seat.zone: 1})
        return await call.app[holds_key].hold_seats(current, holder, seats=(seat,), ack=ack)

    event, reply = await despite_changes(call, event, attempt)
    if not reply.status.succeeded or reply.hold_id is None:
        return refuse_reply(call, event, reply, seat_ids=(seat_id,))
    document = event.seat_at[seat.value]
    held_until, left_s = time_left(reply.until_ms, reply.now_ms)
    already = reply.status is Status.ALREADY_HELD
    left = say_time(left_s)
    return call.answer(
        200 if already else 201,
        Reserved(
            hold_id=reply.hold_id,
            seat_id=seat_id,
            event_id=event.event_id,
            block_name=event.zones[seat.zone].document.name,
            row=document.row,
            seat_number=str(document.number),
            status="held",
            held_until=held_until,
            held_until_unix=reply.until_ms // 1000,
            expires_in_seconds=left_s,
            message=f"You already hold this seat, for {left} more."
            if already
            else f"Seat reserved for {left}. Proceed to checkout.",
            durability=durability(reply.position, ack),
            companion_seat_ids=companion_seat_ids(event, (seat,)),
        ),
    )


def find_seat(event: CompiledEvent, seat_id: str) -> tuple[str, Pair]:
    """A seat by the id in the path. Where the event calls its seats by UUIDs, what is none is a malformed request."""
    seat = event.seats.get(seat_id)
    if seat is not None:
        return seat_id, seat
    if parse_uuid(seat_id) is not None:
        seat = event.seats.get(seat_id.lower())
        if seat is not None:
            return seat_id.lower(), seat
    elif parse_uuid(next(iter(event.seats), "")) is not None:
        raise Refused(problem("invalid_request", "The seat id in the path is not a UUID."))
    raise Refused(problem(reason_of(Status.SEAT_NOT_FOUND)))
