"""The backend that decides in Postgres, under row locks, while Redis does not serve a shard."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from uuid import UUID

from holdfast.engine.backend import (
    AdminReply,
    EventIds,
    EventReading,
    EventRef,
    ExpireReply,
    Holder,
    HoldReply,
    HoldsReading,
    HoldsReply,
    Position,
)
from holdfast.engine.errors import Unavailable
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory, compile_event
from holdfast.engine.records import Pair, ZoneCounts, pack_pairs
from holdfast.engine.status import Status
from holdfast.persistence import row_lock_admin, row_lock_changes, row_lock_companions, row_lock_holds
from holdfast.persistence.pool import POSTGRES_ERRORS, Pool
from holdfast.persistence.row_lock_admin import EventChange, SeatChange
from holdfast.persistence.row_lock_changes import Extension, Release, Sale
from holdfast.persistence.row_lock_companions import Declination
from holdfast.persistence.row_lock_group import PATIENCE_S, Call, GroupCommit, Reply, read_sighting
from holdfast.persistence.row_lock_holds import Wish
from holdfast.persistence.row_lock_view import Asks, View
from holdfast.persistence.sql import query

MAX_READ_IDS = 100
MAX_READ_HOLDS = 128

# How far back a user's ended holds are shown, as long as Redis has them on record.
RECENT_MS = 3_600_000


class RowLockBackend:
    """Implements engine.backend.Backend on Postgres alone, for events whose shard is in mode `db`.

    Every answer is committed when it is given, so nothing needs to be waited for. A shard in another mode is answered
    with `fenced`. The epoch is read under the fence and not believed beforehand: rows, unlike the keys of Redis, are
    the same in every epoch. Ended holds stay on record for good.
    """

    def __init__(self, pool: Pool, *, shards: int) -> None:
        self._pool = pool
        self._shards = shards
        self._group = GroupCommit(pool, shards=shards)

    async def hold_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
    ) -> HoldReply:
        try:
            wish = Wish(event, holder, _pairs(seats), _pairs(quantities))
        except ValueError:
            return row_lock_holds.refused(Status.INVALID_REQUEST, 0, Position(0, 0, 0))
        call = Call(wish.asks(), partial(row_lock_holds.hold_seats, wish=wish), row_lock_holds.refused)
        return await self._run(event, call)

    async def allocate_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        accessible: bool = False,
        categories: Collection[SeatCategory] = (),
    ) -> HoldReply:
        if not all(0 <= zone < len(event.zones) for zone in zones):
            return row_lock_holds.refused(Status.SEAT_NOT_FOUND, 0, Position(0, 0, 0))
        wanted = event.narrowed(zones, categories) if categories and not accessible else None
        if wanted is not None and not wanted:
            return row_lock_holds.refused(Status.SEAT_NOT_FOUND, 0, Position(0, 0, 0))
        wish = Wish(event, holder, zones=tuple(zones), count=count, accessible=accessible, categories=wanted)
        rules = row_lock_holds.allocate_accessible_seats if accessible else row_lock_holds.allocate_seats
        return await self._run(event, Call(wish.asks(), partial(rules, wish=wish), row_lock_holds.refused))

    async def decline_companions(
        self, event: EventRef, hold_id: UUID, *, user_id: UUID, meta: bytes = b""
    ) -> AdminReply:
        wish = Declination(hold_id, user_id, meta)
        decide = partial(row_lock_companions.decline_companions, wish=wish)
        return await self._run(event, Call(wish.asks(), decide, row_lock_admin.refused))

    async def offer_seats(
        self, event: CompiledEvent, holder: Holder, *, zones: Sequence[int], count: int, near: int, take: bool
    ) -> HoldReply:
        if not all(0 <= zone < len(event.zones) for zone in zones):
            return row_lock_holds.refused(Status.SEAT_NOT_FOUND, 0, Position(0, 0, 0))
        wish = Wish(event, holder, zones=tuple(zones), count=count, near=near, take=take)
        call = Call(wish.asks(), partial(row_lock_holds.offer_seats, wish=wish), row_lock_holds.refused)
        return await self._run(event, call)

    async def extend_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID,
        key: str,
        extension_ms: int,
        total_ms: int,
        checkout: str = "",
        meta: bytes = b"",
    ) -> HoldsReply:
        wish = Extension(tuple(hold_ids), user_id, key, extension_ms, total_ms, checkout, meta)
        decide = partial(row_lock_changes.extend_holds, wish=wish)
        return await self._run(event, Call(row_lock_changes.asks(wish), decide, row_lock_changes.refused))

    async def release_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID | None,
        reason: str,
        checkout: str = "",
        meta: bytes = b"",
    ) -> HoldsReply:
        wish = Release(tuple(hold_ids), user_id, reason, checkout, meta)
        decide = partial(row_lock_changes.release_holds, wish=wish)
        return await self._run(event, Call(row_lock_changes.asks(wish), decide, row_lock_changes.refused))

    async def confirm_holds(
        self, event: EventRef, hold_ids: Iterable[UUID], *, sale: str, user_id: UUID | None, meta: bytes = b""
    ) -> HoldsReply:
        wish = Sale(tuple(hold_ids), user_id, sale, meta)
        decide = partial(row_lock_changes.confirm_holds, wish=wish)
        return await self._run(event, Call(row_lock_changes.asks(wish), decide, row_lock_changes.refused))

    async def expire_holds(self, organization_id: UUID, event_id: UUID, *, limit: int) -> ExpireReply:
        asks = Asks(overdue=min(max(limit, 1), row_lock_changes.MAX_EXPIRED))
        decide = partial(row_lock_changes.expire_holds, limit=limit)
        return await self._run(EventIds(organization_id, event_id), Call(asks, decide, _expired_nothing, alone=True))

    async def block_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        wish = SeatChange(event, _pairs(seats), _pairs(quantities), meta)
        decide = partial(row_lock_admin.block_seats, wish=wish)
        return await self._run(event, Call(wish.asks(), decide, row_lock_admin.refused, alone=True))

    async def unblock_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        wish = SeatChange(event, _pairs(seats), _pairs(quantities), meta)
        decide = partial(row_lock_admin.unblock_seats, wish=wish)
        return await self._run(event, Call(wish.asks(), decide, row_lock_admin.refused, alone=True))

    async def open_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        """Put an event into service that persistence.catalogue has saved; one that is not saved is not loaded."""
        wish = EventChange(event, event, meta)
        decide = partial(row_lock_admin.open_event, wish=wish)
        return await self._run(event, Call(wish.asks(), decide, row_lock_admin.refused, alone=True))

    async def set_event_state(
        self, event: CompiledEvent, changed: EventDocument, *, meta: bytes = b""
    ) -> tuple[AdminReply, CompiledEvent]:
        """Change an open event's state, window, limits or capacities; returns the event to use from then on."""
        compiled = compile_event(event.organization_id, changed)
        wish = EventChange(event, compiled, meta)
        decide = partial(row_lock_admin.set_event_state, wish=wish)
        reply = await self._run(event, Call(wish.asks(), decide, row_lock_admin.refused, alone=True))
        return reply, compiled if reply.status.succeeded else event

    async def close_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        wish = EventChange(event, event, meta)
        decide = partial(row_lock_admin.close_event, wish=wish)
        return await self._run(event, Call(wish.asks(), decide, row_lock_admin.refused, alone=True))

    async def read_event(self, organization_id: UUID, event_id: UUID, *, want_map: bool) -> EventReading:
        shard = shard_of(event_id, self._shards)
        try:
            async with self._pool.acquire(timeout=PATIENCE_S) as connection:
                row = await connection.fetchrow(query("read_served_event"), shard, event_id, organization_id, want_map)
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"Postgres cannot be used: {error or type(error).__name__}") from error
        nowhere = Position(shard, row["epoch"] or 0, 0)
        if row["mode"] != "db":
            return EventReading(Status.FENCED, row["now_ms"], nowhere, "", "", 0, 0, (), b"")
        if row["version"] is None:
            return EventReading(Status.EVENT_NOT_FOUND, row["now_ms"], nowhere, "", "", 0, 0, (), b"")
        return EventReading(
            Status.DONE,
            row["now_ms"],
            Position(shard, row["epoch"], row["seq"]),
            row["version"],
            row["state"],
            row["opens_ms"],
            row["closes_ms"],
            tuple(ZoneCounts(*zone) for zone in row["zones"]),
            (row["map"] or "").encode(),
        )

    async def read_holds(
        self, organization_id: UUID, event_id: UUID, *, user_id: UUID | None, hold_ids: Iterable[UUID] = ()
    ) -> HoldsReading:
        ids = tuple(hold_ids)
        asks = Asks(hold_ids=ids[: MAX_READ_IDS + 1], window_ms=RECENT_MS, overdue=0)
        if user_id and not ids:
            asks = Asks(user_ids=(user_id,), window_ms=RECENT_MS, overdue=0)
        scope, shard = EventIds(organization_id, event_id), shard_of(event_id, self._shards)
        try:
            async with self._pool.acquire(timeout=PATIENCE_S) as connection:
                view = View(await read_sighting(connection, scope, shard, [asks]), scope, shard)
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"Postgres cannot be used: {error or type(error).__name__}") from error
        if not view.served:
            return HoldsReading(Status.FENCED, view.now_ms, view.position(0), ())
        if len(ids) > MAX_READ_IDS or len(set(ids)) < len(ids) or not (ids or user_id):
            return HoldsReading(Status.INVALID_REQUEST, view.now_ms, view.position(0), ())
        found = [view.holds.get(hold_id) for hold_id in ids or list(view.holds)[-MAX_READ_HOLDS:]]
        holds = tuple(hold.stored() for hold in found if hold and user_id in (None, hold.user_id))
        return HoldsReading(Status.DONE, view.now_ms, view.position(view.seq), holds)

    async def _run(self, event: EventRef, call: Call[Reply]) -> Reply:
        return await self._group.run(EventIds(event.organization_id, event.event_id), call)


def _expired_nothing(status: Status, now_ms: int, position: Position) -> ExpireReply:
    return ExpireReply(status, now_ms, position, 0, 0)


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Pair, ...]:
    """Pairs that Redis could take as well. Raises ValueError for others."""
    given = tuple(Pair(zone, value) for zone, value in pairs)
    pack_pairs(given)
    return given
