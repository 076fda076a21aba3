"""What all calls that hold seats have in common: the event, how durable the answer is to be, repeats, and refusals."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.acks import Ack
from holdfast.engine.backend import NEVER_MS, AdminReply, Holder, HoldReply, Position
from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.errors import BackendError
from holdfast.engine.hold_ids import derived_hold_id, new_hold_id
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.policy import AckRule, Policy
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.engine.telemetry import POSTGRES, REDIS, count_failed_hold, count_hold
from holdfast.http.endpoints import Call
from holdfast.http.errors import EncodedProblem, Refused, encode_problem, problem, reason_of, reasons_of
from holdfast.http.stores import catalogue_key, epochs_key, refusals_key, settings_key
from holdfast.http.whole_response import WholeResponse

# Reasons for which a request to hold anything may be refused.
HOLD_ERRORS = (
    *reasons_of(
        Status.EVENT_NOT_FOUND,
        Status.EVENT_NOT_AVAILABLE,
        Status.EVENT_UNAVAILABLE,
        Status.EVENT_SALES_CLOSED,
        Status.SEAT_NOT_FOUND,
        Status.TOO_MANY_SEATS,
        Status.SEAT_NOT_AVAILABLE,
        Status.SEAT_HELD_BY_ANOTHER_USER,
        Status.LEAVES_ORPHAN,
        Status.WHEELCHAIR_LIMIT_EXCEEDED,
        Status.BLOCK_AT_CAPACITY,
        Status.HOLD_ID_REUSED,
        Status.HOLD_RELEASED,
        Status.HOLD_EXPIRED,
        Status.USER_LIMIT_EXCEEDED,
        Status.ADDRESS_LIMIT_EXCEEDED,
        Status.RATE_LIMIT_EXCEEDED,
        Status.BUSY,
        Status.FENCED,
        Status.STALE_CONFIG,
    ),
    "unknown_outcome",
)

# Headers of the answers to such a request.
LIMIT_HEADERS = {
    "RateLimit-Policy": "The limits that the event has.",
    "RateLimit": "With a 429: the limit that is reached, and the seconds until it lifts.",
}

# Scripts and Postgres keep it, and neither takes control characters.
CartToken = Annotated[
    str, Meta(max_length=60, pattern=r"^[^\x00-\x1f\x7f]*$", description="names the cart that the hold belongs to")
]


class Source(StrEnum):
    """What a reservation was made with."""

    WEB = "web"
    SCANNER = "scanner"


# The limit that each refusal is about, as RateLimit headers name it.
_LIMITS = {
    Status.RATE_LIMIT_EXCEEDED: "seats",
    Status.USER_LIMIT_EXCEEDED: "live-seats",
    Status.ADDRESS_LIMIT_EXCEEDED: "address-seats",
}

# When nobody can say when a limit lifts.
_RETRY_LATER_S = 60

# An event changes in Postgres first, and a moment later in Redis.
_STALE_PAUSES_S = (0.0, 0.05, 0.2)

# Everybody who asks for a hot seat within a second is told the same.
_recent_refusals: dict[tuple[object, ...], EncodedProblem] = {}
_RECENT_REFUSALS_MAX = 1000

# By the version of the event, which is quicker to look up than a policy.
_stated_limits: dict[str, str] = {}
_STATED_LIMITS_MAX = 1000

_Reply = TypeVar("_Reply", HoldReply, AdminReply)

_encode = msgspec.json.Encoder(order="deterministic").encode


async def find_event(call: Call, event_id: UUID | None = None) -> CompiledEvent:
    """The event in the path, or another one. Raises Refused if the caller's organisation has no such event."""
    organization_id, event_id = call.principal.organization_id, event_id or call.ids["event"]
    catalogue = call.app[catalogue_key]
    event = catalogue.known(organization_id, event_id) or await catalogue.get(organization_id, event_id)
    if event is None:
        raise Refused(problem(reason_of(Status.EVENT_NOT_FOUND)))
    return event


def make_holder(call: Call, event: CompiledEvent, content: msgspec.Struct, *, cart: str, source: str) -> Holder:
    """Who asks. With an Idempotency-Key the hold's id follows from it, and the digest of the content tells whether a
    repeat asks for the same."""
    user_id = call.principal.user_id
    if call.idempotency_key:
        scope = event.organization_id.bytes + event.event_id.bytes
        hold_id = derived_hold_id(event.tag, scope, user_id, call.idempotency_key)
        fingerprint = blake2b(call.request.path.encode() + _encode(content), digest_size=8).hexdigest()
    else:
        hold_id, fingerprint = new_hold_id(event.tag), ""
    return Holder(
        hold_id=hold_id,
        user_id=user_id,
        fingerprint=fingerprint,
        address=call.address_digest,
        cart=cart,
        meta=call.caller(source).meta(),
    )


def choose_ack(call: Call, event: CompiledEvent) -> Ack:
    """How durable the answer is to be: what the event says, and what the request prefers where the event leaves it."""
    rule = event.document.policy.ack or call.app[settings_key].ack
    preferred = _preferred_ack(call.request.headers.get("Prefer"))
    ack = Ack.REDIS if rule is AckRule.REDIS else Ack.POSTGRES
    if preferred is not None and (rule is not AckRule.POSTGRES or preferred is ack):
        ack = preferred
        call.add_header("Preference-Applied", f"ack={ack.value}")
    return ack


def durability(position: Position, ack: Ack) -> Ack:
    """How durable an answer is: what needs no commit is in Postgres whatever was asked for."""
    return ack if position.seq else Ack.POSTGRES


async def despite_changes(
    call: Call, event: CompiledEvent, attempt: Callable[[CompiledEvent], Awaitable[HoldReply]]
) -> tuple[CompiledEvent, HoldReply]:
    """Try, and try again with the event as it is now when it has changed; the result is counted."""
    began, epochs = time.perf_counter(), call.app[epochs_key]
    try:
        reply = await attempt(event)
        if reply.status is Status.STALE_CONFIG:
            event, reply = await _with_changes(call, event, attempt)
    except BackendError:
        count_failed_hold(_decided_by(epochs.state(shard_of(event.event_id, epochs.shards))))
        raise
    method = _decided_by(epochs.state(reply.position.shard))
    count_hold(reply.status, method, method, time.perf_counter() - began)
    return event, reply


def _decided_by(state: ShardState) -> str:
    """Who decides on holds while a shard is in this state."""
    return POSTGRES if state.mode is Mode.DB else REDIS


async def with_current(
    call: Call, event: CompiledEvent, attempt: Callable[[CompiledEvent], Awaitable[_Reply]]
) -> tuple[CompiledEvent, _Reply]:
    """Try, and try again with the event as it is now when it has changed."""
    reply = await attempt(event)
    return (event, reply) if reply.status is not Status.STALE_CONFIG else await _with_changes(call, event, attempt)


async def _with_changes(
    call: Call, event: CompiledEvent, attempt: Callable[[CompiledEvent], Awaitable[_Reply]]
) -> tuple[CompiledEvent, _Reply]:
    """Try again with the event as it is now, because it is not what it was."""
    for pause_s in _STALE_PAUSES_S:
        await asyncio.sleep(pause_s)
        changed = await call.app[catalogue_key].reload(event)
        if changed is None:
            raise Refused(problem(reason_of(Status.EVENT_NOT_FOUND)))
        event, reply = changed, await attempt(changed)
        if reply.status is not Status.STALE_CONFIG:
            break
    return event, reply


def refuse_reply(
    call: Call, event: CompiledEvent, reply: HoldReply, *, seat_ids: tuple[str, ...], proposed: tuple[Pair, ...] = ()
) -> WholeResponse:
    """Tell the client what the engine said, and which other seats are free."""
    return refuse_hold(
        call,
        event,
        reply.status,
        seat_ids=seat_ids,
        until_ms=reply.until_ms,
        now_ms=reply.now_ms,
        seats=reply.seats,
        quantities=reply.quantities,
        proposed=proposed,
    )


def refuse_hold(
    call: Call,
    event: CompiledEvent,
    status: Status,
    *,
    seat_ids: tuple[str, ...],
    until_ms: int = 0,
    now_ms: int = 0,
    seats: tuple[Pair, ...] = (),
    quantities: tuple[Pair, ...] = (),
    proposed: tuple[Pair, ...] = (),
) -> WholeResponse:
    """Say no, note it for the audit, and say when it may lift; never who is in the way."""
    principal = call.principal
    call.app[refusals_key].record(
        event.organization_id,
        event.event_id,
        status,
        user_id=principal.user_id,
        seat_ids=seat_ids,
        caller=call.caller,
    )
    lifts_in_s = max(0, -(-(until_ms - now_ms) // 1000)) if until_ms > 0 else None
    limit = _LIMITS.get(status)
    if limit is not None:
        retry_after_s = max(1, lifts_in_s) if lifts_in_s is not None else _RETRY_LATER_S
        call.add_header("RateLimit", f'"{limit}";r=0;t={retry_after_s}')
        return call.refuse(problem(reason_of(status), retry_after_seconds=retry_after_s))
    key = (event.version, status, until_ms, lifts_in_s, seats, quantities, proposed)
    document = _recent_refusals.get(key)
    if document is None:
        if len(_recent_refusals) >= _RECENT_REFUSALS_MAX:
            _recent_refusals.clear()
        document = _recent_refusals[key] = encode_problem(
            problem(
                reason_of(status),
                current_status=_current_status(status, until_ms) if seats else None,
                expires_at=datetime.fromtimestamp(until_ms / 1000, UTC) if until_ms > 0 else None,
                expires_in=lifts_in_s,
                seats=tuple(event.seat_at[seat.value].seat_id for seat in seats if seat.value in event.seat_at) or None,
                zones=tuple(event.zones[zone].document.zone_id for zone, _ in quantities if zone < len(event.zones))
                or None,
                counter_offer=tuple(event.seat_at[seat.value].seat_id for seat in proposed) or None,
            )
        )
    return call.refuse_encoded(document)


def _current_status(status: Status, until_ms: int) -> str | None:
    """What the seats in the way are, by what the engine says of them."""
    if status is Status.SEAT_NOT_AVAILABLE:
        return "sold" if until_ms == NEVER_MS else "blocked"
    return "held" if status is Status.SEAT_HELD_BY_ANOTHER_USER else None


def state_limits(call: Call, event: CompiledEvent) -> None:
    """Tell the client the limits that the event has."""
    stated = _stated_limits.get(event.version)
    if stated is None:
        if len(_stated_limits) >= _STATED_LIMITS_MAX:
            _stated_limits.clear()
        stated = _stated_limits[event.version] = _rate_limit_policy(event.document.policy)
    if stated:
        call.add_header("RateLimit-Policy", stated)


def is_on_sale(event: CompiledEvent) -> bool:
    """Whether the event sells as far as this process knows; the script has the last word."""
    now_ms = time.time() * 1000
    return event.document.state.selling == 1 and event.opens_ms <= now_ms and not 0 < event.closes_ms < now_ms


def time_left(until_ms: int, now_ms: int) -> tuple[datetime, int]:
    """When a hold ends, and in how many whole seconds."""
    return datetime.fromtimestamp(until_ms / 1000, UTC), max(0, until_ms - now_ms) // 1000


def say_time(seconds: int) -> str:
    """A time for a sentence."""
    minutes = seconds // 60
    return f"{seconds} seconds" if not minutes else "1 minute" if minutes == 1 else f"{minutes} minutes"


def _rate_limit_policy(policy: Policy) -> str:
    """The limits as draft-ietf-httpapi-ratelimit-headers writes them: a quota, and a window where there is one."""
    stated = []
    if policy.rate_limit_seats:
        stated.append(f'"seats";q={policy.rate_limit_seats};w={policy.rate_limit_seconds}')
    if policy.max_holds_per_user:
        stated.append(f'"live-seats";q={policy.max_holds_per_user}')
    if policy.max_holds_per_ip:
        stated.append(f'"address-seats";q={policy.max_holds_per_ip}')
    return ", ".join(stated)


@lru_cache(maxsize=1000)
def _preferred_ack(header: str | None) -> Ack | None:
    """What a Prefer header (RFC 7240) says of acknowledgement."""
    for preference in (header or "").split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "ack":
            wanted = value.strip().strip('"').lower()
            return Ack(wanted) if wanted in tuple(Ack) else None
    return None
