"""Checkouts: `POST /api/checkouts`, `GET /api/checkouts/{checkout}`, and how they end."""

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.checkouts import (
    MAX_HOLDS,
    CheckoutRecord,
    EndReply,
    Payment,
    StartReply,
    Wish,
)
from holdfast.engine.hold_ids import derived_hold_id, new_hold_id
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.status import Status
from holdfast.http.checkout_replies import (
    CancelledCheckout,
    Checkout,
    describe_cancellation,
    describe_checkout,
    seat_ids,
    zone_ids,
)
from holdfast.http.endpoints import BUYERS, Call, Endpoints
from holdfast.http.errors import Problem, Refused, problem, reason_of, reasons_of
from holdfast.http.holding import CartToken, find_event
from holdfast.http.repeats import REPEAT_ERRORS, REPEAT_HEADERS, repeatable
from holdfast.http.stores import checkouts_key, refusals_key
from holdfast.http.tokens import Role
from holdfast.http.units import Notes
from holdfast.http.whole_response import WholeResponse

endpoints = Endpoints()

# Who may look at a checkout that is somebody else's.
STAFF = frozenset({Role.ORGANIZER, Role.ADMIN, Role.SERVICE})

_ENGINE_ERRORS = (*reasons_of(Status.FENCED), *REPEAT_ERRORS)

Reference = Annotated[
    str,
    Meta(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="what the payment side calls the payment; for the audit",
    ),
]


class StartCheckout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to check out: the named holds, or everything that you hold in the cart."""

    event_id: UUID
    cart_token: CartToken = ""
    hold_ids: Annotated[tuple[UUID, ...], Meta(max_length=MAX_HOLDS)] = ()


class CompleteCheckout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the payment ended."""

    payment: Payment
    payment_reference: Reference = ""


class CancelCheckout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: Literal["user_cancelled"] = "user_cancelled"
    notes: Notes = ""


@endpoints.post(
    "/api/checkouts",
    summary="Start a checkout",
    description="Takes your live holds of a cart, or those you name, and gives them more time, once. 201 for a new "
    "checkout, 200 if they are in one already. Until it ends, they are released, extended and sold by it alone. "
    "`hold_expired` names the holds that came too late: reserve again, or name the others.",
    roles=BUYERS,
    body=StartCheckout,
    replies={201: Checkout, 200: Checkout},
    errors=(
        *reasons_of(
            Status.EVENT_NOT_FOUND,
            Status.EVENT_UNAVAILABLE,
            Status.HOLD_NOT_FOUND,
            Status.HOLD_SOLD,
            Status.HOLD_RELEASED,
            Status.HOLD_EXPIRED,
            Status.HOLD_IN_CHECKOUT,
            Status.TOO_MANY_SEATS,
        ),
        *_ENGINE_ERRORS,
    ),
    example=StartCheckout(event_id=UUID("084bfe9a-4aa4-53c7-acc9-c0b84c92e9a8"), cart_token="cart-1"),  # noqa: S106
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="checkouts",
)
@repeatable
async def start_checkout(call: Call, body: StartCheckout) -> WholeResponse:
    event = await find_event(call, body.event_id)
    wish = Wish(
        checkout_id=_checkout_id(call, event),
        user_id=call.principal.user_id,
        cart=body.cart_token,
        hold_ids=tuple(dict.fromkeys(body.hold_ids)),
    )
    reply = await call.app[checkouts_key].start(event, wish, call.caller().meta())
    if reply.checkout is None:
        return call.refuse(_refused_start(call, event, reply))
    return call.answer(201 if reply.status is Status.DONE else 200, describe_checkout(event, reply.checkout))


@endpoints.get(
    "/api/checkouts/{checkout}",
    summary="A checkout of yours",
    description="What is in it, what became of it, and the tickets once it is completed.",
    roles=BUYERS | STAFF,
    replies={200: Checkout},
    errors=("checkout_not_found",),
    tag="checkouts",
)
async def read_checkout(call: Call) -> WholeResponse:
    checkout = await _find_checkout(call, owner_only=call.principal.role not in STAFF)
    return call.answer(200, describe_checkout(await find_event(call, checkout.event_id), checkout))


@endpoints.post(
    "/api/checkouts/{checkout}/complete",
    summary="Say how the payment ended",
    description="`succeeded` sells everything, or nothing and says what was lost: then pay the money back and complete "
    "it as failed. A payment that succeeds after the holds have expired buys the same seats if they are still free. "
    "`failed` releases everything.",
    roles=frozenset({Role.SERVICE}),
    body=CompleteCheckout,
    replies={200: Checkout},
    errors=(
        "checkout_not_found",
        "checkout_completed",
        "checkout_failed",
        "checkout_cancelled",
        *reasons_of(Status.SEATS_LOST, Status.EVENT_UNAVAILABLE, Status.EVENT_NOT_FOUND),
        *_ENGINE_ERRORS,
    ),
    example=CompleteCheckout(Payment.SUCCEEDED, "pay-1"),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="checkouts",
)
@repeatable
async def complete_checkout(call: Call, body: CompleteCheckout) -> WholeResponse:
    checkout = await _find_checkout(call, owner_only=False)
    event = await find_event(call, checkout.event_id)
    meta = call.actor(body.payment_reference).meta()
    ended = await call.app[checkouts_key].complete(checkout, body.payment, meta)
    _raise_unless_ended(event, ended)
    return call.answer(200, describe_checkout(event, ended.checkout))


@endpoints.post(
    "/api/checkouts/{checkout}/cancel",
    summary="Cancel a checkout of yours",
    description="Releases everything in it. Whoever comes first wins: a checkout that is completed cannot be "
    "cancelled, and a payment that comes after this is refused.",
    roles=BUYERS,
    body=CancelCheckout,
    replies={200: CancelledCheckout},
    errors=(
        "checkout_not_found",
        "checkout_completed",
        "checkout_failed",
        *reasons_of(Status.EVENT_NOT_FOUND),
        *_ENGINE_ERRORS,
    ),
    example=CancelCheckout(),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="checkouts",
)
@repeatable
async def cancel_checkout(call: Call, body: CancelCheckout) -> WholeResponse:
    checkout = await _find_checkout(call, owner_only=True)
    event = await find_event(call, checkout.event_id)
    ended = await call.app[checkouts_key].cancel(checkout, call.actor(body.notes).meta())
    _raise_unless_ended(event, ended)
    return call.answer(200, describe_cancellation(event, ended.checkout))


def _checkout_id(call: Call, event: CompiledEvent) -> UUID:
    """Under a key always the same one, so that a start that was cut off finds what it began."""
    if not call.idempotency_key:
        return new_hold_id(event.tag)
    scope = b"checkout" + event.organization_id.bytes + event.event_id.bytes
    return derived_hold_id(event.tag, scope, call.principal.user_id, call.idempotency_key)


async def _find_checkout(call: Call, *, owner_only: bool) -> CheckoutRecord:
    who = call.principal
    found = await call.app[checkouts_key].find(who.organization_id, call.ids["checkout"])
    if found is None or (owner_only and found.user_id != who.user_id):
        raise Refused(problem("checkout_not_found"))
    return found


def _refused_start(call: Call, event: CompiledEvent, reply: StartReply) -> Problem:
    seats = seat_ids(event, (seat for hold in reply.holds for seat in hold.record.seats))
    zones = zone_ids(event, (pair for hold in reply.holds for pair in hold.record.quantities))
    if reply.status is Status.HOLD_EXPIRED:
        call.app[refusals_key].record(
            event.organization_id,
            event.event_id,
            reply.status,
            user_id=call.principal.user_id,
            seat_ids=seats,
            caller=call.caller,
        )
    detail = None
    if reply.status is Status.HOLD_EXPIRED:
        detail = "These holds have expired. Reserve again, or start the checkout with the other holds by name."
    elif reply.status is Status.HOLD_NOT_FOUND and not reply.missing:
        detail = "You hold nothing in this cart."
    holds = reply.missing or tuple(hold.hold_id for hold in reply.holds)
    return problem(reason_of(reply.status), detail, seats=seats or None, zones=zones or None, holds=holds or None)


def _raise_unless_ended(event: CompiledEvent, ended: EndReply) -> None:
    """Refuse a checkout that did not end as asked, and say how it did."""
    checkout = ended.checkout
    match ended.status:
        case Status.DONE | Status.REPEATED | Status.HOLD_EXPIRED:
            return
        case Status.HOLD_SOLD | Status.HOLD_RELEASED:
            raise Refused(problem(f"checkout_{checkout.status}", checkout_id=checkout.checkout_id))
        case Status.SEATS_LOST:
            raise Refused(
                problem(
                    reason_of(Status.SEATS_LOST),
                    "Nothing was sold, because these went to somebody else after their time was over.",
                    seats=seat_ids(event, ended.lost_seats) or None,
                    zones=zone_ids(event, ended.lost_quantities) or None,
                    checkout_id=checkout.checkout_id,
                )
            )
    raise Refused(problem(reason_of(ended.status)))
