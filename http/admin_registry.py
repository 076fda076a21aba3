"""The registry of an event's holds: whether Redis and Postgres agree, and making them."""

from typing import Literal
from uuid import UUID

import msgspec
from aiohttp import web

from holdfast.engine.status import Status
from holdfast.http.catalogue import ADMINS, ORGANIZERS
from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import Refused, problem, reason_of, reasons_of
from holdfast.http.holding import find_event
from holdfast.http.repeats import REPEAT_ERRORS, REPEAT_HEADERS, repeatable
from holdfast.http.stores import asking_redis, database, desk_connection, redis_key
from holdfast.http.units import Notes
from holdfast.http.whole_response import WholeResponse
from holdfast.persistence.catalogue import list_events
from holdfast.persistence.hot_counts import ask_hot_counts
from holdfast.persistence.reconcile import ReconcileError, reconcile
from holdfast.persistence.status import EventStatus, ShardStatus, event_status, shard_statuses

endpoints = Endpoints()

_SHOWN = 100

# By how Redis and Postgres go together: whether all is well, and what to say.
_SAID = {
    "agrees": (True, "All layers in sync"),
    "not open": (True, "The event is not in service."),
    "not in Redis": (True, "Postgres serves the event."),
    "behind": (False, "Postgres has not caught up with Redis. Ask again."),
    "differs": (False, "Consistency warning: Redis and Postgres differ. Reconcile the event."),
}


class Registry(msgspec.Struct, frozen=True):
    """An event, its shard, and whether Redis and Postgres say the same; `stale` says that they do not yet, or not."""

    event: EventStatus
    shard: ShardStatus
    consistent: bool
    status: Literal["ok", "stale"]
    message: str


class ReconcileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dry run only says what differs."""

    dry_run: bool = False
    notes: Notes = ""


class Difference(msgspec.Struct, frozen=True):
    """One thing that differed; `subject` names the seat, hold or zone."""

    subject: str
    problem: str


class Reconciled(msgspec.Struct, frozen=True):
    """How many things differed, the first hundred of them, and whether Redis was brought to what Postgres says."""

    event_id: UUID
    repaired: bool
    difference_count: int
    differences: tuple[Difference, ...]


@endpoints.get(
    "/api/admin/registry/{event}",
    summary="Do hot caches, Redis and Postgres agree on an event?",
    description="Compares what Redis and Postgres count, at a common place of the log, and says how far that is "
    "persisted. `hot` has the seats that each front end has seen taken, which are never more than Redis has.",
    roles=ORGANIZERS,
    replies={200: Registry},
    errors=reasons_of(Status.EVENT_NOT_FOUND),
    tag="administration",
)
async def registry(call: Call) -> web.StreamResponse:
    redis = call.app[redis_key]
    with asking_redis():
        async with database(call.app) as connection:
            found = await list_events(connection, call.principal.organization_id, call.ids["event"])
            if not found:
                raise Refused(problem(reason_of(Status.EVENT_NOT_FOUND)))
            event = await event_status(redis, connection, found[0], await ask_hot_counts(connection))
            (shard,) = await shard_statuses(redis, connection, [event.shard])
    consistent, message = _SAID[event.agreement]
    if consistent and any(hot.agreement == "differs" for hot in event.hot):
        consistent, message = False, "Consistency warning: a front end takes seats for taken that are not."
    return call.answer(200, Registry(event, shard, consistent, "ok" if consistent else "stale", message))


@endpoints.post(
    "/api/admin/registry/{event}/reconcile",
    summary="Bring an event in Redis back to what Postgres says",
    description="Where the two differ, the event is replaced in Redis in one step. It takes no new holds meanwhile, "
    "and needs a keeper that persists the log. 409 says why it cannot be done.",
    roles=ADMINS,
    body=ReconcileRequest,
    replies={200: Reconciled},
    errors=("not_reconcilable", *reasons_of(Status.EVENT_NOT_FOUND), *REPEAT_ERRORS),
    example=ReconcileRequest(dry_run=True),
    idempotency_key=True,
    reply_headers=REPEAT_HEADERS,
    tag="administration",
)
@repeatable
async def reconcile_registry(call: Call, body: ReconcileRequest) -> WholeResponse:
    event = await find_event(call)
    actor = call.actor(body.notes)
    try:
        with asking_redis():
            async with desk_connection(call.app) as connection:
                done = await reconcile(
                    call.app[redis_key], connection, event.event_id, dry_run=body.dry_run, actor=actor
                )
    except ReconcileError as error:
        raise Refused(problem("not_reconcilable", str(error))) from None
    differences = tuple(Difference(finding.subject, finding.problem) for finding in done.findings[:_SHOWN])
    return call.answer(200, Reconciled(event.event_id, done.repaired, len(done.findings), differences))
