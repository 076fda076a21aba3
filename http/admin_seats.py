"""What organisers do with seats: give back what others hold, take seats out of sale, put them back."""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.backend import AdminReply, StoredHold
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.http.catalogue import ORGANIZERS
from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import Problem, Refused, problem, reason_of, reasons_of
from holdfast.http.hold_views import HeldQuantity, HeldSeat, held_quantities, held_seats
from holdfast.http.holding import find_event, with_current
from holdfast.http.repeats import REPEAT_ERRORS, REPEAT_HEADERS, repeatable
from holdfast.http.stores import database, holds_key
from holdfast.http.units import Id, Notes, find_seats, find_zone
from holdfast.http.whole_response import WholeResponse
from holdfast.persistence.sql import query

endpoints = Endpoints()

# What the scripts take in one call.
_SEATS_MAX = 1000
_ZONES_MAX = 100
_HOLDS_AT_ONCE = 50

_EXAMPLE_EVENT = UUID("084bfe9a-4aa4-53c7-acc9-c0b84c92e9a8")
_EXAMPLE_SEAT = "580108b8-d3da-5a19-b6b9-1345fd5fe8a6"

Seats = Annotated[tuple[Id, ...], Meta(max_length=_SEATS_MAX)]


class Outcome(StrEnum):
    """What became of a seat or a hold that was to be released; those with `hold_` are the names of the refusals."""

    RELEASED = "released"
    HOLD_RELEASED = "hold_released"
    HOLD_EXPIRED = "hold_expired"
    HOLD_IN_CHECKOUT = "hold_in_checkout"
    HOLD_SOLD = "hold_sold"
    HOLD_NOT_FOUND = "hold_not_found"
    SEAT_AVAILABLE = "seat_available"
    SEAT_BLOCKED = "seat_blocked"


class ReleaseSeats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seats, holds, or both. A hold ends as a whole: with a seat of it, the others come free as well."""

    event_id: UUID
    seats: Seats = ()
    hold_ids: Annotated[tuple[UUID, ...], Meta(max_length=_SEATS_MAX)] = ()
    reason: Literal["admin_override"] = "admin_override"
    notes: Notes = ""


class SeatOutcome(msgspec.Struct, frozen=True):
    """A seat that was named, and the hold that had it, if one did."""

    seat_id: str
    outcome: Outcome
    hold_id: UUID | None


class HoldOutcome(msgspec.Struct, frozen=True):
    """A hold, and what its end set free."""

    hold_id: UUID
    outcome: Outcome
    released_seats: tuple[HeldSeat, ...] = ()
    released_quantities: tuple[HeldQuantity, ...] = ()


class SeatsReleased(msgspec.Struct, frozen=True, kw_only=True):
    """What was released; `hold_id` when it was one hold. `status` is `unchanged` when there was nothing left to do."""

    status: Literal["released", "unchanged"]
    event_id: UUID
    hold_id: UUID | None
    seats_released: int
    reason: str
    message: str
    seats: tuple[SeatOutcome, ...]
    holds: tuple[HoldOutcome, ...]


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Places of a general-admission zone."""

    zone_id: Id
    quantity: Annotated[int, Meta(ge=1, le=1_000_000)]


class BlockSeats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seats and places, all or none."""

    event_id: UUID
    seats: Seats = ()
    quantities: Annotated[tuple[Places, ...], Meta(max_length=_ZONES_MAX)] = ()
    notes: Notes = ""


class SeatsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed, which leaves out what was so before. `status` is `unchanged` when nothing has."""

    status: Literal["blocked", "unblocked", "unchanged"]
    event_id: UUID
    changed_seats: tuple[HeldSeat, ...]
    changed_quantities: tuple[HeldQuantity, ...]
    changed_count: int
    message: str


_ENGINE_ERRORS = (
    *reasons_of(Status.EVENT_NOT_FOUND, Status.SEAT_NOT_FOUND, Status.FENCED, Status.STALE_CONFIG),
    *REPEAT_ERRORS,
)
_OUTCOMES = {
    Status.DONE: Outcome.RELEASED,
    Status.HOLD_RELEASED: Outcome.HOLD_RELEASED,
    Status.HOLD_EXPIRED: Outcome.HOLD_EXPIRED,
    Status.HOLD_IN_CHECKOUT: Outcome.HOLD_IN_CHECKOUT,
    Status.HOLD_SOLD: Outcome.HOLD_SOLD,
    Status.HOLD_NOT_FOUND: Outcome.HOLD_NOT_FOUND,
}
# A seat that no hold has is as free as it can be made, out of sale, or sold.
_UNHELD = {"blocked": Outcome.SEAT_BLOCKED, "sold": Outcome.HOLD_SOLD}
# Why nothing at all was released, the first that applies; what is free already is no reason.
_REFUSALS = (Outcome.HOLD_SOLD, Outcome.HOLD_IN_CHECKOUT)


@endpoints.post(
    "/api/admin/seats/release",
    summary="Release what others hold",
    description="Ends holds, named by themselves or by a seat of theirs, with an outcome for each. What is sold is "
    "never released, and what is in a checkout ends with that: when nothing else was asked for, that is a 409. "
    "Releasing again changes nothing.",
    roles=ORGANIZERS,
    body=ReleaseSeats,
    replies={200: SeatsReleased},
    errors=(*reasons_of(Status.HOLD_NOT_FOUND, Status.HOLD_SOLD, Status.HOLD_IN_CHECKOUT), *_ENGINE_ERRORS),
    example=ReleaseSeats(_EXAMPLE_EVENT, seats=(_EXAMPLE_SEAT,), notes="The customer called."),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="administration",
)
@repeatable
async def release_seats(call: Call, body: ReleaseSeats) -> WholeResponse:
    event = await find_event(call, body.event_id)
    if not body.seats and not body.hold_ids:
        raise Refused(problem("invalid_request", "Name seats or holds."))
    wanted = dict(zip(body.seats, find_seats(event, body.seats), strict=True))
    owners = await _find_owners(call, event, wanted.values())
    hold_ids = tuple(dict.fromkeys((*body.hold_ids, *(each for each in owners.values() if isinstance(each, UUID)))))
    holds = await _release(call, event, hold_ids, call.actor(body.notes).meta())
    seats = []
    for seat_id, seat in wanted.items():
        owner = owners[seat.value]
        if isinstance(owner, UUID):
            seats.append(SeatOutcome(seat_id, holds[owner].outcome, owner))
        else:
            seats.append(SeatOutcome(seat_id, owner, None))
    released = [hold for hold in holds.values() if hold.outcome is Outcome.RELEASED]
    if not released:
        _refuse_if_in_the_way(seats, holds.values())
    count = sum(len(hold.released_seats) + sum(each.quantity for each in hold.released_quantities) for hold in released)
    return call.answer(
        200,
        SeatsReleased(
            status="released" if released else "unchanged",
            event_id=event.event_id,
            hold_id=released[0].hold_id if len(released) == 1 else None,
            seats_released=count,
            reason=body.reason,
            message="Seats released by admin" if released else "There was nothing left to release.",
            seats=tuple(seats),
            holds=tuple(holds.values()),
        ),
    )


async def _find_owners(call: Call, event: CompiledEvent, seats: Iterable[Pair]) -> dict[int, UUID | Outcome]:
    """By ordinal, the hold that has a seat, or what it is when none has it."""
    ordinals = [seat.value for seat in seats]
    if not ordinals:
        return {}
    service = call.app[holds_key]
    reading = await service.read_event(event.organization_id, event.event_id, want_map=False)
    if not reading.status.succeeded:
        raise Refused(problem(reason_of(reading.status)))
    # Postgres knows who has a seat once it has come to where the engine is.
    await service.committed(reading.position)
    async with database(call.app) as connection:
        rows = await connection.fetch(query("find_seat_holds"), event.organization_id, event.event_id, ordinals)
    found: dict[int, UUID | Outcome] = dict.fromkeys(ordinals, Outcome.SEAT_AVAILABLE)
    for row in rows:
        is_held = row["status"] == "held" and row["hold_id"] is not None
        found[row["ordinal"]] = row["hold_id"] if is_held else _UNHELD.get(row["status"], Outcome.SEAT_AVAILABLE)
    return found


async def _release(
    call: Call, event: CompiledEvent, hold_ids: tuple[UUID, ...], meta: bytes
) -> dict[UUID, HoldOutcome]:
    """End holds, as many at a time as a script takes. Each ends on its own, so a repeat completes what was cut off."""
    service, found = call.app[holds_key], {}
    for first in range(0, len(hold_ids), _HOLDS_AT_ONCE):
        some = hold_ids[first : first + _HOLDS_AT_ONCE]
        reading = await service.read_holds(event.organization_id, event.event_id, user_id=None, hold_ids=some)
        reply = await service.release_holds(event, some, user_id=None, reason="admin_override", meta=meta)
        if not reply.outcomes:
            raise Refused(problem(reason_of(reply.status)))
        stored = {hold.hold_id: hold for hold in reading.holds}
        for hold_id, status in zip(some, reply.outcomes, strict=True):
            found[hold_id] = _describe(event, hold_id, _OUTCOMES[status], stored.get(hold_id))
    return found


def _describe(event: CompiledEvent, hold_id: UUID, outcome: Outcome, stored: StoredHold | None) -> HoldOutcome:
    if outcome is not Outcome.RELEASED or stored is None:
        return HoldOutcome(hold_id, outcome)
    record = stored.record
    return HoldOutcome(hold_id, outcome, held_seats(event, record.seats), held_quantities(event, record.quantities))


def _refuse_if_in_the_way(seats: Collection[SeatOutcome], holds: Collection[HoldOutcome]) -> None:
    """Raise Refused when nothing could be released for a reason, or when there is nothing at all of what was named."""
    outcomes = [each.outcome for each in seats] + [each.outcome for each in holds]
    for reason in _REFUSALS:
        if reason in outcomes:
            named = tuple(each.seat_id for each in seats if each.outcome is reason)
            ids = tuple(each.hold_id for each in holds if each.outcome is reason)
            raise Refused(problem(reason, seats=named or None, holds=ids or None))
    if set(outcomes) == {Outcome.HOLD_NOT_FOUND}:
        raise Refused(problem(Outcome.HOLD_NOT_FOUND, holds=tuple(each.hold_id for each in holds)))


@endpoints.post(
    "/api/admin/seats/block",
    summary="Take seats and places out of sale",
    description="All or none. What is held or sold is not blocked: the refusal names it. Blocking a seat again changes "
    "nothing; places are blocked on top of those that are, so after `unknown_outcome` look at the zone first.",
    roles=ORGANIZERS,
    body=BlockSeats,
    replies={200: SeatsChanged},
    errors=(
        *reasons_of(Status.SEAT_NOT_AVAILABLE, Status.SEAT_HELD_BY_ANOTHER_USER, Status.BLOCK_AT_CAPACITY),
        *_ENGINE_ERRORS,
    ),
    example=BlockSeats(_EXAMPLE_EVENT, seats=(_EXAMPLE_SEAT,), notes="A pillar is in the way."),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="administration",
)
@repeatable
async def block_seats(call: Call, body: BlockSeats) -> WholeResponse:
    return await _change(call, body, blocks=True)


@endpoints.post(
    "/api/admin/seats/unblock",
    summary="Put seats and places back on sale",
    description="All or none. What is not blocked stays as it is; of places, at most as many as are blocked come back.",
    roles=ORGANIZERS,
    body=BlockSeats,
    replies={200: SeatsChanged},
    errors=_ENGINE_ERRORS,
    example=BlockSeats(_EXAMPLE_EVENT, seats=(_EXAMPLE_SEAT,), notes="The pillar is gone."),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="administration",
)
@repeatable
async def unblock_seats(call: Call, body: BlockSeats) -> WholeResponse:
    return await _change(call, body, blocks=False)


async def _change(call: Call, body: BlockSeats, *, blocks: bool) -> WholeResponse:
    event = await find_event(call, body.event_id)
    if not body.seats and not body.quantities:
        raise Refused(problem("invalid_request", "Name seats or quantities."))
    seats = find_seats(event, body.seats)
    quantities = tuple(Pair(find_zone(event, wish.zone_id), wish.quantity) for wish in body.quantities)
    if len({zone for zone, _ in quantities}) < len(quantities):
        raise Refused(problem("invalid_request", "A zone is named twice."))
    meta, service = call.actor(body.notes).meta(), call.app[holds_key]
    change = service.block_seats if blocks else service.unblock_seats

    async def attempt(current: CompiledEvent) -> AdminReply:
        return await change(current, seats=seats, quantities=quantities, meta=meta)

    event, reply = await with_current(call, event, attempt)
    if not reply.status.succeeded:
        raise Refused(_refusal(event, reply))
    count = len(reply.seats) + sum(quantity for _, quantity in reply.quantities)
    done: Literal["blocked", "unblocked"] = "blocked" if blocks else "unblocked"
    return call.answer(
        200,
        SeatsChanged(
            status=done if count else "unchanged",
            event_id=event.event_id,
            changed_seats=held_seats(event, reply.seats),
            changed_quantities=held_quantities(event, reply.quantities),
            changed_count=count,
            message=f"{count} {'seat or place' if count == 1 else 'seats and places'} {done}.",
        ),
    )


_DETAILS = {
    Status.SEAT_NOT_AVAILABLE: "Some of the seats are sold, or kept for companions. Nothing was blocked.",
    Status.SEAT_HELD_BY_ANOTHER_USER: "Some of the seats are held. Release them first. Nothing was blocked.",
    Status.BLOCK_AT_CAPACITY: "The zone does not have so many free places. Nothing was blocked.",
}


def _refusal(event: CompiledEvent, reply: AdminReply) -> Problem:
    """What the engine said no to, and what is in the way."""
    return problem(
        reason_of(reply.status),
        _DETAILS.get(reply.status),
        seats=tuple(event.seat_at[seat.value].seat_id for seat in reply.seats) or None,
        zones=tuple(event.zones[zone].document.zone_id for zone, _ in reply.quantities) or None,
    )
