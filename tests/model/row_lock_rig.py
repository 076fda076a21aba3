"""The row-lock backend for the model test: a shard that Postgres serves, looked at and moved through time by SQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from model.rig import RETENTION_MS, Rig, Snapshot

from holdfast.engine.backend import Position
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import HoldRecord, Pair
from holdfast.persistence.apply import moment
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.pool import Pool, open_pool
from holdfast.persistence.postgres_event import HoldLine, read_postgres_event
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.sql import query
from holdfast.persistence.verify import CHECKS
from support.engine import SHARDS
from support.row_locks import DB_EPOCH, serve_from_postgres

LETTERS = {"held": b"h", "sold": b"s", "blocked": b"b"}
STATES = {"active": "h", "converted": "s", "cancelled": "r", "expired": "x"}
FOR_EVER_MS = 10**13
TABLES = "seat_holds, tickets, checkouts, audit_log, outbox, organizations, control, shard_marks"


class RowLockInspector:
    """Looks at one event's rows in Postgres, which must say the same thing in every table."""

    forgets = False

    def __init__(self, pool: Pool, event: CompiledEvent) -> None:
        self._pool = pool
        self._event = event

    def position(self, seq: int) -> Position:
        return Position(shard_of(self._event.event_id, SHARDS), DB_EPOCH, seq)

    async def snapshot(self, after_seq: int) -> Snapshot:
        event_id, shard = self._event.event_id, shard_of(self._event.event_id, SHARDS)
        async with self._pool.acquire() as connection:
            found = await read_postgres_event(connection, event_id, ended_for_ms=FOR_EVER_MS)
            last_seq = await connection.fetchval("SELECT seq FROM shard_marks WHERE shard = $1", shard)
            problems = [row["problem"] for check in CHECKS for row in await connection.fetch(query(check), event_id)]
        # A capacity may be made smaller than what is held already.
        assert [problem for problem in problems if "more than its capacity" not in problem] == []
        assert found is not None
        assert last_seq >= after_seq
        places = bytearray(self._event.map)
        for ordinal, seat in found.seats.items():
            places[ordinal : ordinal + 1] = (
                LETTERS.get(seat.status) or self._event.seat_at[ordinal].category.free_letter
            )
        return Snapshot(
            map=bytes(places),
            owners={ordinal: seat.hold_id for ordinal, seat in found.seats.items() if seat.hold_id},
            records={hold_id: record_of(lines) for hold_id, lines in found.holds.items()},
            live={hold_id: lines[0].ends_ms for hold_id, lines in found.active.items()},
            ended={
                hold_id: lines[0].ended_ms + RETENTION_MS
                for hold_id, lines in found.holds.items()
                if lines[0].ended_ms is not None
            },
            last_seq=last_seq,
            log=None,
        )

    async def lapse(self, hold_id: UUID, at_ms: int) -> None:
        await self._update("seat_holds SET held_until = $2 WHERE hold_id = $1", hold_id, moment(at_ms))
        await self._update("seats SET held_until = $2 WHERE seat_hold_id = $1", hold_id, moment(at_ms))

    async def backdate(self, hold_id: UUID, created_ms: int) -> None:
        await self._update("seat_holds SET created_at = $2 WHERE hold_id = $1", hold_id, moment(created_ms))

    async def outdate(self, hold_id: UUID, at_ms: int) -> None:
        raise AssertionError(f"rows stay on record for good, {hold_id} past {at_ms} too")

    async def _update(self, what: str, hold_id: UUID, at: datetime) -> None:
        async with self._pool.acquire() as connection:
            await connection.execute(f"UPDATE {what}", hold_id, at)


def record_of(lines: tuple[HoldLine, ...]) -> HoldRecord:
    first = lines[0]
    return HoldRecord(
        user_id=first.user_id,
        state=STATES[first.status],
        seq=first.seq,
        created_ms=first.created_ms,
        ttl_ms=first.ttl_ms,
        seats=tuple(Pair(line.zone, line.ordinal) for line in lines if line.ordinal is not None),
        quantities=tuple(Pair(line.zone, line.quantity) for line in lines if line.ordinal is None),
        fingerprint=first.fingerprint,
        address=first.address,
        cart=first.cart,
        checkout=first.checkout,
        extension=first.extension,
    )


@asynccontextmanager
async def row_lock_rig(dsn: str, event: CompiledEvent) -> AsyncIterator[Rig]:
    """The row-lock backend on an emptied database, with the event open."""
    async with open_pool(dsn, name="model", max_size=2) as pool:
        async with pool.acquire() as connection:
            await connection.execute(f"TRUNCATE {TABLES} CASCADE")
            await serve_from_postgres(connection)
            await save_event(connection, event, SHARDS)
        backend = RowLockBackend(pool, shards=SHARDS)
        opened = await backend.open_event(event)
        assert opened.status.succeeded, opened
        yield Rig(backend, RowLockInspector(pool, event))
