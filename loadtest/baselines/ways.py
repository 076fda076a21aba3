"""The ways themselves. Each is what one would write first with the client library at hand, and leaves out what Holdfast
does besides: no limits per user or address, no outbox, no counters, no fence, no release and no expiry.

Those that write to Postgres write to Holdfast's own tables, in a database of their own: the seat, the hold, the audit.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.persistence.pool import Connection, Pool

REDIS_ONLY_SCRIPT = Path(__file__).with_name("redis_only.lua")

# What the seeds' key lives longer than the hold, as a safety net.
KEY_GRACE = timedelta(minutes=1)

LOCK_SEAT = "SELECT status FROM seats WHERE event_id = $1 AND ordinal = $2 FOR UPDATE NOWAIT"
FIND_OWN_HOLD = """
SELECT hold_id FROM seat_holds WHERE event_id = $1 AND ordinal = $2 AND user_id = $3 AND status = 'active'
"""
MARK_SEAT = """
UPDATE seats SET status = 'held', held_until = $3, locked_at = $4, seat_hold_id = $5, version = version + 1
WHERE event_id = $1 AND ordinal = $2
"""
INSERT_HOLD = """
INSERT INTO seat_holds (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, held_until,
    created_at, updated_at, ttl_ms, epoch, seq)
VALUES ($1, 0, $2, $3, $4, $5, $6, 1, $7, $8, $8, $9, 0, 0)
"""
INSERT_AUDIT = """
INSERT INTO audit_log (organization_id, event_id, user_id, action, entity_type, entity_id, changes, created_at)
VALUES ($1, $2, $3, 'seat_reserved', 'SeatHold', $4, $5, $6)
"""


class Wish(msgspec.Struct, frozen=True):
    """Who wants which seat, under which id, from when until when."""

    event: CompiledEvent
    seat: Pair
    user_id: UUID
    hold_id: UUID
    created_at: datetime
    held_until: datetime

    @property
    def ttl(self) -> timedelta:
        return self.held_until - self.created_at


class Way(ABC):
    """A way to hold a seat."""

    @abstractmethod
    async def hold(self, wish: Wish) -> UUID | None:
        """The hold that the user has on the seat now: the one wished for, or an earlier one. None if it is taken."""


class RowLock(Way):
    """Postgres alone: the row of the seat is locked without waiting, then everything is written in one transaction."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def hold(self, wish: Wish) -> UUID | None:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                seat = (wish.event.event_id, wish.seat.value)
                if await connection.fetchval(LOCK_SEAT, *seat) != "available":
                    own: UUID | None = await connection.fetchval(FIND_OWN_HOLD, *seat, wish.user_id)
                    return own
                await _write(connection, wish)
        except asyncpg.LockNotAvailableError:
            return None
        return wish.hold_id


class DualWrite(Way):
    """`SET NX` in Redis takes the seat, then a transaction in Postgres records it. If that fails, the key goes."""

    def __init__(self, redis: Redis, pool: Pool) -> None:
        self._redis = redis
        self._pool = pool

    async def hold(self, wish: Wish) -> UUID | None:
        key = f"org:{wish.event.organization_id}:event:{wish.event.event_id}:seat:{wish.seat.value}"
        held = _Held(wish.user_id, wish.hold_id, wish.held_until)
        if not await self._redis.set(key, msgspec.json.encode(held), nx=True, px=wish.ttl + KEY_GRACE):
            taken = await self._redis.get(key)
            found = msgspec.json.decode(taken, type=_Held) if taken else None
            return found.hold_id if found and found.user_id == wish.user_id else None
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await _write(connection, wish)
        except BaseException:
            await self._redis.delete(key)
            raise
        return wish.hold_id


class RedisOnly(Way):
    """One script in Redis by redis-py's `evalsha`, and nothing that would survive it."""

    def __init__(self, script: AsyncScript) -> None:
        self._script = script

    async def hold(self, wish: Wish) -> UUID | None:
        key = f"org:{wish.event.organization_id}:event:{wish.event.event_id}:seat:{wish.seat.value}"
        ttl_ms = wish.ttl // timedelta(milliseconds=1)
        user, hold = await self._script([key], [wish.user_id.bytes, wish.hold_id.bytes, ttl_ms])
        return UUID(bytes=hold) if user == wish.user_id.bytes else None


class WayName(StrEnum):
    """The names that the command line and the figures use."""

    ROW_LOCK = "row_lock"
    DUAL_WRITE = "dual_write"
    REDIS_ONLY = "redis_only"


@asynccontextmanager
async def open_way(name: WayName, redis_url: str, pool: Pool) -> AsyncIterator[Way]:
    """A way to hold seats, on the servers given."""
    if name is WayName.ROW_LOCK:
        yield RowLock(pool)
        return
    async with Redis.from_url(redis_url) as redis:
        if name is WayName.DUAL_WRITE:
            yield DualWrite(redis, pool)
        else:
            yield RedisOnly(redis.register_script(REDIS_ONLY_SCRIPT.read_bytes()))


class _Held(msgspec.Struct, frozen=True):
    user_id: UUID
    hold_id: UUID
    expires_at: datetime


async def _write(connection: Connection, wish: Wish) -> None:
    """The seat, the hold and the audit, as three statements of the transaction under way."""
    event, ordinal = wish.event, wish.seat.value
    await connection.execute(MARK_SEAT, event.event_id, ordinal, wish.held_until, wish.created_at, wish.hold_id)
    await connection.execute(
        INSERT_HOLD,
        wish.hold_id,
        event.organization_id,
        event.event_id,
        wish.user_id,
        wish.seat.zone,
        ordinal,
        wish.held_until,
        wish.created_at,
        wish.ttl // timedelta(milliseconds=1),
    )
    changes = msgspec.json.encode({"seat_ids": [event.seat_at[ordinal].seat_id], "held_until": wish.held_until})
    await connection.execute(
        INSERT_AUDIT,
        event.organization_id,
        event.event_id,
        wish.user_id,
        str(wish.hold_id),
        changes.decode(),
        datetime.now(UTC),
    )
