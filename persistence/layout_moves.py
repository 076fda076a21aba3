"""Moving an event, sales and all, to another version of its layout.

Seats keep their ids, and what refers to a seat finds it at its new place: holds, tickets, the seat itself. So every
seat that was ever held or sold has to be in the new version, by its id or under a new name that the operator gives; and
every zone has to take what is held, sold and blocked in it. Otherwise the move is refused and says why. A seat that was
sold once and is no longer wanted stays in the layout and is blocked.

It is done while Postgres serves the event's shard, in one transaction in which nobody else writes: the log of the
scripts names seats by their place, and an epoch's log must mean one layout only. Callers who know the event as it was
are told so (`stale_config`) and ask again.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.epochs import Mode
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent, compile_event
from holdfast.engine.plan import EventPlan, LayoutReference
from holdfast.persistence.catalogue import (
    EVENTS_CHANNEL,
    CatalogueError,
    changing,
    insert_seats,
    insert_zones,
    load_event,
    organization_of,
)
from holdfast.persistence.fence import frozen, read_controls
from holdfast.persistence.layouts import load_plan, remember_plan, resolve_plan
from holdfast.persistence.modes import Progress, set_mode
from holdfast.persistence.pool import Connection
from holdfast.persistence.service import Servers
from holdfast.persistence.sql import query
from holdfast.persistence.transitions import Cause, sealed, state_of

# Where the new zones of a layout are numbered from while both are there; the queries know it too.
_NEW_ZONES = 1000


class LayoutMove(msgspec.Struct, frozen=True):
    """What a move does, or would do: it is refused if there are objections."""

    event_id: UUID
    from_version: int
    to_version: int
    config_version: str
    seats_kept: int
    seats_added: int
    seats_removed: int
    objections: tuple[str, ...] = ()
    moved: bool = False


class _Journey(msgspec.Struct, frozen=True):
    """An event before and after, and where everything that stays goes: seats by ordinals, zones by indices."""

    before: CompiledEvent
    after: CompiledEvent
    plan: EventPlan
    renamed: Mapping[str, str]
    seats: Mapping[int, int]
    zones: Mapping[int, int]

    @property
    def scope(self) -> tuple[UUID, UUID]:
        return self.after.event_id, self.after.organization_id

    def zone_at(self, ordinal: int) -> int:
        """The zone of a seat afterwards."""
        return self.after.seats[self.after.seat_at[ordinal].seat_id].zone

    def new_status(self, ordinal: int) -> str | None:
        """What a seat that the plan begins or ceases to block becomes; nothing for other seats."""
        was = self.before.seat_at[ordinal].seat_id in self.before.document.blocked_seat_ids
        becomes = self.after.seat_at[self.seats[ordinal]].seat_id in self.after.document.blocked_seat_ids
        return None if was == becomes else "blocked" if becomes else "available"


async def move_event(
    servers: Servers,
    event_id: UUID,
    version: int,
    *,
    renamed: Mapping[str, str],
    cause: Cause,
    dry_run: bool,
    organization_id: UUID | None = None,
    progress: Progress = lambda _: None,
) -> LayoutMove:
    """Move an event to a version of its layout. Raises CatalogueError, LayoutError, PolicyError or Moved.

    `renamed` says under which id a seat is found in the new version, if not under its own. A shard that Redis serves is
    served by Postgres meanwhile, and comes back to Redis whether the move was made or refused.
    """
    shard = shard_of(event_id, servers.shards)
    async with servers.pool.acquire() as connection, changing(connection, event_id):
        owner = organization_id or await organization_of(connection, event_id)
        before = await load_event(connection, owner, event_id) if owner else None
        if before is None:
            raise CatalogueError(f"There is no event {event_id}.")
        plan = await load_plan(connection, before.organization_id, event_id)
        if plan is None:
            raise CatalogueError(f"The event {event_id} is not made from a stored layout: it has no other version.")
        journey = await _plan_journey(connection, before, plan, version, renamed)
        async with frozen(connection):
            move = await _examine(connection, journey, plan.layout.version)
        if dry_run or move.objections:
            return move
        control = (await read_controls(connection, [shard]))[shard]
        served_by = state_of(control).mode
        # Pinned, or a keeper would bring it back before it is done.
        away = msgspec.structs.replace(cause, pinned=True)
        await set_mode(servers, Mode.DB, away, [shard], progress=progress)
        try:
            return await _move(connection, shard, journey, plan.layout.version, cause)
        finally:
            if served_by is Mode.REDIS:
                await set_mode(servers, Mode.REDIS, cause, [shard], progress=progress)
            elif not control.pinned:
                await set_mode(servers, Mode.DB, cause, [shard], progress=progress)


async def _plan_journey(
    connection: Connection, before: CompiledEvent, plan: EventPlan, version: int, renamed: Mapping[str, str]
) -> _Journey:
    """The event as it is, on the other version of its layout."""
    changed = msgspec.structs.replace(plan, layout=LayoutReference(plan.layout.layout_id, version))
    planned = await resolve_plan(connection, before.organization_id, changed)
    document = msgspec.structs.replace(
        before.document,
        zones=planned.zones,
        seat_groups=planned.seat_groups,
        blocked_seat_ids=planned.blocked_seat_ids,
    )
    after = compile_event(before.organization_id, document)
    return _Journey(
        before=before,
        after=after,
        plan=changed,
        renamed=renamed,
        seats={
            pair.value: after.seats[new].value
            for seat_id, pair in before.seats.items()
            if (new := renamed.get(seat_id, seat_id)) in after.seats
        },
        zones={
            zone.index: after.zone_index[zone.document.zone_id]
            for zone in before.zones
            if zone.document.zone_id in after.zone_index
        },
    )


async def _move(connection: Connection, shard: int, journey: _Journey, from_version: int, cause: Cause) -> LayoutMove:
    state = state_of((await read_controls(connection, [shard]))[shard])
    async with sealed(connection, shard, state):
        # Examined again: until the fence was taken, seats went on being held.
        move = await _examine(connection, journey, from_version)
        if move.objections:
            return move
        await _rewrite(connection, journey)
        done = msgspec.structs.replace(move, moved=True)
        changes = msgspec.json.encode({"reason": cause.reason, "move": done}).decode()
        organization_id = journey.after.organization_id
        await remember_plan(connection, organization_id, journey.plan)
        await connection.execute(
            query("insert_layout_move"), organization_id, journey.after.event_id, changes, cause.actor
        )
    return done


async def _examine(connection: Connection, journey: _Journey, from_version: int) -> LayoutMove:
    """What moving would do to the event as it is at this moment."""
    before, after, renamed = journey.before, journey.after, journey.renamed
    objections = [f"There is no seat {old!r} to be renamed." for old in renamed if old not in before.seats]
    objections += [f"The new version has no seat {new!r}." for new in renamed.values() if new not in after.seats]
    if len(set(journey.seats.values())) < len(journey.seats):
        objections.append("Two seats would become one.")
    objections += _lost(journey, await connection.fetch(query("list_used_places"), *journey.scope))
    if not objections:
        objections += await _without_room(connection, journey)
    return LayoutMove(
        event_id=after.event_id,
        from_version=from_version,
        to_version=journey.plan.layout.version,
        config_version=after.version,
        seats_kept=len(journey.seats),
        seats_added=len(after.seats) - len(journey.seats),
        seats_removed=len(before.seats) - len(journey.seats),
        objections=tuple(objections),
    )


def _lost(journey: _Journey, used: list[Any]) -> Iterator[str]:
    """What is referred to and would have no place."""
    for row in used:
        if row["ordinal"] is None:
            there = journey.zones.get(row["zone"])
            if there is None or journey.after.zones[there].document.zone_type.seated:
                zone_id = journey.before.zones[row["zone"]].document.zone_id
                yield f"Places of the zone {zone_id!r} are or were taken, and the new version has none there."
        elif row["ordinal"] not in journey.seats:
            seat_id = journey.before.seat_at[row["ordinal"]].seat_id
            yield f"The seat {seat_id!r} is or was taken, and the new version does not have it."


async def _without_room(connection: Connection, journey: _Journey) -> list[str]:
    """Taken seats that the plan blocks, and zones in which more is taken than they take."""
    after = journey.after
    taken = [0] * len(after.zones)
    objections = []
    for row in await connection.fetch(query("list_taken_seats"), *journey.scope):
        if row["status"] == "blocked":
            continue
        there = journey.seats[row["ordinal"]]
        if journey.new_status(row["ordinal"]) == "blocked":
            objections.append(f"The seat {after.seat_at[there].seat_id!r} is {row['status']}, and the plan blocks it.")
        taken[journey.zone_at(there)] += 1
    for row in await connection.fetch(query("read_zone_counts"), *journey.scope):
        if not row["seats"] and row["zone"] in journey.zones:
            taken[journey.zones[row["zone"]]] += row["held"] + row["sold"] + row["blocked"]
    objections += [
        f"The zone {zone.document.zone_id!r} takes {zone.document.capacity}, and {taken[zone.index]} are taken."
        for zone in after.zones
        if taken[zone.index] > zone.document.capacity
    ]
    return objections


async def _rewrite(connection: Connection, journey: _Journey) -> None:
    """Bring the rows of the event to its new layout, within a sealed transaction."""
    after, scope, places = journey.after, journey.scope, list(journey.seats.values())
    seats = [after.seat_at[there] for there in places]
    await insert_zones(connection, after, first=_NEW_ZONES)
    await connection.execute(
        query("begin_move"),
        *scope,
        list(journey.seats),
        places,
        list(journey.zones),
        list(journey.zones.values()),
        [journey.zone_at(there) for there in places],
    )
    await connection.execute(query("drop_old_zones"), *scope)
    await connection.execute(query("end_move"), *scope)
    await connection.execute(
        query("describe_seats"),
        *scope,
        places,
        [seat.seat_id for seat in seats],
        [seat.row for seat in seats],
        [seat.number for seat in seats],
        [seat.category for seat in seats],
        [journey.new_status(ordinal) for ordinal in journey.seats],
    )
    await insert_seats(connection, after, without=frozenset(places))
    pairs = [(companion, wheelchair) for companion, others in after.companions.items() for wheelchair in others]
    await connection.execute(query("pair_seats"), *scope, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    await connection.fetch(query("settle_zones"), [after.event_id])
    document = after.document
    await connection.execute(
        query("update_event"),
        *scope,
        document.name,
        document.state,
        after.version,
        msgspec.json.encode(document, order="deterministic").decode(),
        document.sale_start,
        document.sale_end,
        EVENTS_CHANNEL,
    )
