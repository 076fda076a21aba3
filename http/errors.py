"""Errors as `application/problem+json` (RFC 9457): every reason a client can meet, its status and its sentence.

"Lost the seat" is 409, and trying again is no use. "Not now" is 429 or 503 with Retry-After. The two are never mixed.
"""

from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from uuid import UUID

import msgspec

from holdfast.engine.errors import BackendError, Overloaded, ScriptFault, Unknown
from holdfast.engine.status import Status

RETRY_AFTER_S = 1


_encode = msgspec.json.Encoder().encode


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong. `error` is the reason a program can rely on, `detail` a sentence for a person.

    `current_status` is that of the seats named: held, sold (one of them at least), or blocked, as one
    that is kept for somebody else is.
    """

    type: str
    title: str
    status: int
    error: str
    detail: str
    retry_after_seconds: int | None = None
    current_status: str | None = None
    expires_at: datetime | None = None
    expires_in: int | None = None
    seats: tuple[str, ...] | None = None
    zones: tuple[str, ...] | None = None
    counter_offer: tuple[str, ...] | None = None
    holds: tuple[UUID, ...] | None = None
    checkout_id: UUID | None = None


class Reason:
    """A reason: the status that goes with it, and what to say."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        self.status = status
        self.detail = detail
        # Looked up once, because an enumeration is slow to give them.
        self.code = status.value
        self.title = status.phrase
        self.retry_after_seconds = RETRY_AFTER_S if status is HTTPStatus.SERVICE_UNAVAILABLE else None


# What backends answer. The status is the one of the outcome.
_OUTCOMES = {
    Status.FENCED: "This part of the sale is changing servers. Try again in a moment.",
    Status.INVALID_REQUEST: "The request cannot be understood.",
    Status.TOO_MANY_SEATS: "That is more than may be reserved in one go.",
    Status.EVENT_NOT_FOUND: "There is no such event.",
    Status.HOLD_ID_REUSED: "This Idempotency-Key was used for another request. Take a new key for a new request.",
    Status.STALE_CONFIG: "The event is being changed. Try again in a moment.",
    Status.EVENT_NOT_AVAILABLE: "The event is not on sale.",
    Status.EVENT_UNAVAILABLE: "The event was cancelled.",
    Status.EVENT_SALES_CLOSED: "Sales are not open now.",
    Status.BUSY: "Too much is going on right now. Try again in a moment.",
    Status.SEAT_NOT_FOUND: "The event has no such seat or zone.",
    Status.SEAT_NOT_AVAILABLE: "The seat is sold, kept for somebody, or not for sale. Choose another one.",
    Status.SEAT_HELD_BY_ANOTHER_USER: "Somebody else holds the seat. Choose another one.",
    Status.USER_LIMIT_EXCEEDED: "You hold as many seats as one person may. Buy or release some first.",
    Status.ADDRESS_LIMIT_EXCEEDED: "As many seats are held from your address as may be. Try again later.",
    Status.RATE_LIMIT_EXCEEDED: "You have reserved many seats in a short time. Try again later.",
    Status.BLOCK_AT_CAPACITY: "The zone is full. Choose another one.",
    Status.NO_AVAILABLE_SEATS: "There are not so many seats together. Choose fewer, or another zone.",
    Status.LEAVES_ORPHAN: "These seats would leave a single seat alone. Take that one too, or others.",
    Status.WHEELCHAIR_LIMIT_EXCEEDED: "You hold as many wheelchair seats as one booking may have.",
    Status.HOLD_NOT_FOUND: "There is no such hold.",
    Status.HOLD_SOLD: "The hold was sold already.",
    Status.HOLD_RELEASED: "The hold was released.",
    Status.HOLD_EXPIRED: "The hold has expired. Reserve again.",
    Status.SEATS_LOST: "Some of the seats have gone to somebody else.",
    Status.EXTENSION_LIMIT: "The hold cannot be extended any further.",
    Status.HOLD_IN_CHECKOUT: "The hold is in a checkout. Complete or cancel that first.",
    Status.EVENT_EXISTS: "The event exists already.",
    Status.LOAD_INCOMPLETE: "The event is not loaded completely.",
    Status.EVENT_IN_USE: "Seats of the event are held or sold.",
}

# What the front end itself answers.
_OWN = {
    "unauthorized": Reason(HTTPStatus.UNAUTHORIZED, "Send a token as `Authorization: Bearer <token>`."),
    "forbidden": Reason(HTTPStatus.FORBIDDEN, "Your role does not allow this."),
    "not_found": Reason(HTTPStatus.NOT_FOUND, "There is nothing at this address."),
    "method_not_allowed": Reason(HTTPStatus.METHOD_NOT_ALLOWED, "This address does not know the method."),
    "request_timeout": Reason(HTTPStatus.REQUEST_TIMEOUT, "The body of the request took too long to arrive."),
    "body_too_large": Reason(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body of the request is too large."),
    "unsupported_media_type": Reason(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send JSON, as `application/json`."),
    "checkout_not_found": Reason(HTTPStatus.NOT_FOUND, "There is no such checkout."),
    "checkout_completed": Reason(HTTPStatus.CONFLICT, "The checkout was completed: its seats are sold."),
    "checkout_failed": Reason(HTTPStatus.CONFLICT, "The payment of the checkout failed: its seats were released."),
    "checkout_cancelled": Reason(HTTPStatus.CONFLICT, "The checkout was cancelled: its seats were released."),
    "internal_error": Reason(
        HTTPStatus.INTERNAL_SERVER_ERROR, "Something is broken here. It was written down under the request id."
    ),
    "unavailable": Reason(HTTPStatus.SERVICE_UNAVAILABLE, "Seats cannot be decided on right now. Try again."),
    "unknown_outcome": Reason(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Whether this was done is not known yet. Repeat the request with the same Idempotency-Key to find out.",
    ),
    "access_denied": Reason(HTTPStatus.FORBIDDEN, "You are not entitled to this zone."),
    "selection_not_offered": Reason(
        HTTPStatus.FORBIDDEN, "Seats of this event are chosen for you. Ask for the best available."
    ),
    "catalogue_conflict": Reason(HTTPStatus.CONFLICT, "This does not go together with what is in the catalogue."),
    "epoch_moved": Reason(HTTPStatus.CONFLICT, "The shard has moved on to another epoch. Look at it again."),
    "not_reconcilable": Reason(HTTPStatus.CONFLICT, "The event cannot be reconciled as things are."),
    "not_ready": Reason(HTTPStatus.SERVICE_UNAVAILABLE, "The front end cannot do its work right now."),
}

# A hold of somebody else's must look like one that does not exist.
_HIDDEN = {Status.NOT_HOLD_OWNER: Status.HOLD_NOT_FOUND}

REASONS = {status.name.lower(): Reason(status.http, detail) for status, detail in _OUTCOMES.items()} | _OWN

_NAMES = {status: _HIDDEN.get(status, status).name.lower() for status in Status}


def reason_of(status: Status) -> str:
    """The reason under which a refusal is told to a client."""
    return _NAMES[status]


def reasons_of(*statuses: Status) -> tuple[str, ...]:
    """The reasons of several refusals, for the declaration of an endpoint."""
    return tuple(map(reason_of, statuses))


def backend_reason(error: BackendError) -> str:
    """The reason under which a failure of the infrastructure is told to a client."""
    if isinstance(error, Unknown):
        return "unknown_outcome"
    if isinstance(error, Overloaded):
        return "busy"
    return "internal_error" if isinstance(error, ScriptFault) else "unavailable"


class EncodedProblem(msgspec.Struct, frozen=True):
    """A problem as it is sent."""

    status: int
    error: str
    body: bytes
    retry_after_seconds: int | None


def encode_problem(document: Problem) -> EncodedProblem:
    """For a problem that is sent more than once."""
    return EncodedProblem(document.status, document.error, _encode(document), document.retry_after_seconds)


class Refused(Exception):
    """Ends a request with a problem, from wherever it is found."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.error)
        self.problem = problem


def problem(
    error: str,
    detail: str | None = None,
    *,
    retry_after_seconds: int | None = None,
    current_status: str | None = None,
    expires_at: datetime | None = None,
    expires_in: int | None = None,
    seats: tuple[str, ...] | None = None,
    zones: tuple[str, ...] | None = None,
    counter_offer: tuple[str, ...] | None = None,
    holds: tuple[UUID, ...] | None = None,
    checkout_id: UUID | None = None,
) -> Problem:
    """The problem for a reason. A client that is told "not now" is told when to try again as well."""
    reason = REASONS[error]
    return Problem(
        type="about:blank",
        title=reason.title,
        status=reason.code,
        error=error,
        detail=detail or reason.detail,
        retry_after_seconds=retry_after_seconds or reason.retry_after_seconds,
        current_status=current_status,
        expires_at=expires_at,
        expires_in=expires_in,
        seats=seats,
        zones=zones,
        counter_offer=counter_offer,
        holds=holds,
        checkout_id=checkout_id,
    )


def statuses_of(errors: Iterable[str]) -> dict[int, list[str]]:
    """Reasons by the status that goes with them."""
    found: dict[int, list[str]] = {}
    for error in errors:
        found.setdefault(REASONS[error].status.value, []).append(error)
    return found
