"""`POST /api/holds/{hold}/decline-companions`: a buyer of wheelchair seats who does not want their companion seats."""

from uuid import UUID

import msgspec

from holdfast.engine.status import Status
from holdfast.http.endpoints import BUYERS, Call, Endpoints
from holdfast.http.errors import problem, reason_of, reasons_of
from holdfast.http.hold_views import HeldSeat, companion_seat_ids, held_seats
from holdfast.http.holding import choose_ack, durability
from holdfast.http.holds import find_hold
from holdfast.http.repeats import REPEAT_ERRORS, REPEAT_HEADERS, repeatable
from holdfast.http.stores import holds_key
from holdfast.http.whole_response import WholeResponse

endpoints = Endpoints()


class Declined(msgspec.Struct, frozen=True):
    """Wheelchair seats whose companion seats are no longer kept."""

    hold_id: UUID
    event_id: UUID
    seats: tuple[HeldSeat, ...]
    companion_seat_ids: tuple[str, ...]
    message: str
    durability: str


@endpoints.post(
    "/api/holds/{hold}/decline-companions",
    summary="Let the companion seats of your wheelchair seats go",
    description="The companion seats that are kept for you are then available to everybody. Those that you hold stay "
    "yours. It may be done while the hold lives and after it was sold; doing it again changes nothing.",
    roles=BUYERS,
    replies={200: Declined},
    errors=(
        *reasons_of(
            Status.HOLD_NOT_FOUND, Status.HOLD_RELEASED, Status.HOLD_EXPIRED, Status.SEAT_NOT_FOUND, Status.FENCED
        ),
        *REPEAT_ERRORS,
    ),
    prefer=True,
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
)
@repeatable
async def decline_companions(call: Call) -> WholeResponse:
    event, stored, _ = await find_hold(call)
    ack = choose_ack(call, event)
    reply = await call.app[holds_key].decline_companions(
        event, stored.hold_id, user_id=call.principal.user_id, meta=call.caller().meta(), ack=ack
    )
    if reply.status is Status.SEAT_NOT_FOUND:
        return call.refuse(problem(reason_of(reply.status), "The hold has no wheelchair seat."))
    if not reply.status.succeeded:
        return call.refuse(problem(reason_of(reply.status)))
    return call.answer(
        200,
        Declined(
            hold_id=stored.hold_id,
            event_id=event.event_id,
            seats=held_seats(event, reply.seats),
            companion_seat_ids=companion_seat_ids(event, reply.seats),
            message="The companion seats are available to everybody.",
            durability=durability(reply.position, ack),
        ),
    )
