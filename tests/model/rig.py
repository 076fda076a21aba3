"""What the model test needs of a backend: the backend itself, a look at its raw state, and a hand on its clock."""

import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.engine.backend import Backend, Position
from holdfast.engine.keys import EventKeys
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import HoldRecord, LogEntry, pack_pairs, unpack_entry, unpack_record
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.wire import Wire
from support.engine import SHARDS, event_keys

RETENTION_MS = 3_600_000


class Snapshot(msgspec.Struct, frozen=True):
    """All of an event's raw state at one moment, and the log entries since the last one, where there is a log."""

    map: bytes
    owners: Mapping[int, UUID]
    records: Mapping[UUID, HoldRecord]
    live: Mapping[UUID, int]
    ended: Mapping[UUID, int]
    last_seq: int
    log: tuple[LogEntry, ...] | None


class Inspector(Protocol):
    """Reads what a backend keeps, and moves what it keeps through time, so that no test has to wait.

    A backend that `forgets` removes ended holds from its records after a while.
    """

    forgets: bool

    def position(self, seq: int) -> Position:
        """How replies name this place in the log."""
        ...

    async def snapshot(self, after_seq: int) -> Snapshot: ...

    async def lapse(self, hold_id: UUID, at_ms: int) -> None:
        """Let a hold have ended at that time."""
        ...

    async def backdate(self, hold_id: UUID, created_ms: int) -> None:
        """Let a hold have been made at that time, without changing when it ends."""
        ...

    async def outdate(self, hold_id: UUID, at_ms: int) -> None:
        """Let the time on record of an ended hold have been over at that time."""
        ...


class Rig(NamedTuple):
    """A backend with an open event, ready for the machine."""

    backend: Backend
    inspector: Inspector


class RedisInspector:
    """Looks at one event's keys in Redis."""

    forgets = True

    def __init__(self, redis: "Redis[bytes]", keys: EventKeys) -> None:
        self._redis = redis
        self._keys = keys

    def position(self, seq: int) -> Position:
        return Position(self._keys.shard.shard, self._keys.shard.epoch, seq)

    async def snapshot(self, after_seq: int) -> Snapshot:
        key = self._keys.key
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.get(key("map"))
            pipeline.get(key("owners"))
            pipeline.hgetall(key("holds"))
            pipeline.zrange(key("expiry"), 0, -1, withscores=True)
            pipeline.zrange(key("ended"), 0, -1, withscores=True)
            pipeline.get(key("seq"))
            pipeline.xrange(key("log"), min=f"{FIRST_EPOCH}-{after_seq + 1}")
            places, owners, holds, live, ended, last_seq, log = await pipeline.execute()
        assert len(owners) == 16 * len(places)
        # The hash also has the lists of each user and address, whose names are of other lengths.
        records = {UUID(bytes=name): unpack_record(record) for name, record in holds.items() if len(name) == 16}
        return Snapshot(
            map=places,
            owners={i: UUID(bytes=owners[16 * i : 16 * i + 16]) for i in range(len(places))},
            records=records,
            live={UUID(bytes=name): int(score) for name, score in live},
            ended={UUID(bytes=name): int(score) for name, score in ended},
            last_seq=int(last_seq),
            log=tuple(unpack_entry(stream_id, fields) for stream_id, fields in log),
        )

    async def lapse(self, hold_id: UUID, at_ms: int) -> None:
        await self._redis.zadd(self._keys.key("expiry"), {hold_id.bytes: at_ms}, xx=True)

    async def backdate(self, hold_id: UUID, created_ms: int) -> None:
        stored = await self._redis.hget(self._keys.key("holds"), hold_id.bytes)
        assert stored is not None
        record = msgspec.structs.replace(unpack_record(stored), created_ms=created_ms)
        await self._redis.hset(self._keys.key("holds"), hold_id.bytes, pack_record(record))

    async def outdate(self, hold_id: UUID, at_ms: int) -> None:
        await self._redis.zadd(self._keys.key("ended"), {hold_id.bytes: at_ms}, xx=True)


def pack_record(record: HoldRecord) -> bytes:
    """The inverse of unpack_record: only tests write records, scripts have lua/include/write_record.lua."""
    head = struct.pack(
        ">16scQQIHH",
        record.user_id.bytes,
        record.state.encode(),
        record.seq,
        record.created_ms,
        record.ttl_ms,
        len(record.seats),
        len(record.quantities),
    )
    texts = (record.fingerprint, record.address, record.cart, record.checkout, record.extension)
    return head + pack_pairs(record.seats) + pack_pairs(record.quantities) + "\n".join(texts).encode()


@asynccontextmanager
async def redis_rig(url: str, event: CompiledEvent) -> AsyncIterator[Rig]:
    """The Redis backend on an emptied server, with the event open."""
    redis: Redis[bytes] = Redis.from_url(url)
    try:
        await redis.flushall()
        await open_shards(redis, SHARDS)
        async with Wire(url, timeout_s=10) as wire:
            backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH, retention_ms=RETENTION_MS)
            opened = await backend.open_event(event)
            assert opened.status.succeeded, opened
            yield Rig(backend, RedisInspector(redis, event_keys(event)))
    finally:
        await redis.aclose()
