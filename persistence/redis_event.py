"""An event as it is in Redis, every key of it at one moment."""

import re
import struct
from typing import Any
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.engine.keys import EventKeys
from holdfast.engine.records import HoldRecord, ZoneCounts, unpack_record
from holdfast.persistence.postgres_event import Taker

_ID_BYTES = 16
_TAKER = re.compile(rb"w\d+")
_COUNTERS = struct.Struct(">IIIII")

LIVE = "h"


class RedisCounts(msgspec.Struct, frozen=True):
    """What an event's `counts` has, and the last log entry at that moment. An event that is not open has no version."""

    seq: int
    now_ms: int
    version: str
    state: str
    zones: tuple[ZoneCounts, ...]
    access: bytes
    takers: dict[int, Taker]

    @property
    def is_open(self) -> bool:
        return bool(self.version)


class RedisEvent(msgspec.Struct, frozen=True):
    """Everything Redis has of an event. `ends` has the live holds only, `unreadable` the ids of broken records."""

    counts: RedisCounts
    map: bytes
    owners: bytes
    holds: dict[UUID, HoldRecord]
    ends: dict[UUID, int]
    unreadable: tuple[UUID, ...]

    def owner(self, ordinal: int) -> UUID | None:
        owner = self.owners[_ID_BYTES * ordinal : _ID_BYTES * (ordinal + 1)]
        return UUID(bytes=owner) if len(owner) == _ID_BYTES and any(owner) else None

    @property
    def live(self) -> dict[UUID, HoldRecord]:
        """The holds that are on record as held, overdue ones included."""
        return {hold_id: record for hold_id, record in self.holds.items() if record.state == LIVE}


async def read_redis_counts(redis: Redis, keys: EventKeys) -> RedisCounts:
    """An event's counters, and the log's last number at the same moment."""
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.get(keys.key("seq"))
        pipeline.time()
        pipeline.hgetall(keys.key("counts"))
        return _counts(*await pipeline.execute())


async def read_redis_event(redis: Redis, keys: EventKeys) -> RedisEvent:
    """All of an event, in one step of the server: a few milliseconds for a hundred thousand seats."""
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.get(keys.key("seq"))
        pipeline.time()
        pipeline.hgetall(keys.key("counts"))
        pipeline.get(keys.key("map"))
        pipeline.get(keys.key("owners"))
        pipeline.hgetall(keys.key("holds"))
        pipeline.zrange(keys.key("expiry"), 0, -1, withscores=True)
        seq, now, counts, seat_map, owners, stored, ends = await pipeline.execute()
    holds, unreadable = {}, []
    for name, record in stored.items():
        # The other fields are the lists of users and addresses, whose names have other lengths.
        if len(name) != _ID_BYTES:
            continue
        try:
            holds[UUID(bytes=name)] = unpack_record(record)
        except (struct.error, ValueError):
            unreadable.append(UUID(bytes=name))
    return RedisEvent(
        counts=_counts(seq, now, counts),
        map=seat_map or b"",
        owners=owners or b"",
        holds=holds,
        ends={UUID(bytes=name): int(score) for name, score in ends},
        unreadable=tuple(unreadable),
    )


def _counts(seq: bytes | None, now: tuple[int, int], counts: dict[bytes, bytes]) -> RedisCounts:
    zones: Any = (
        ZoneCounts(int(name), *_COUNTERS.unpack(packed))
        for name, packed in counts.items()
        if name.isdigit() and len(packed) == _COUNTERS.size
    )
    return RedisCounts(
        seq=int(seq or 0),
        now_ms=now[0] * 1000 + now[1] // 1000,
        version=counts.get(b"version", b"").decode(),
        state=counts.get(b"state", b"").decode(),
        zones=tuple(sorted(zones)),
        access=counts.get(b"access", b""),
        takers={
            int(name[1:]): Taker(UUID(bytes=taker[:_ID_BYTES]), len(taker) > _ID_BYTES)
            for name, taker in counts.items()
            if _TAKER.fullmatch(name)
        },
    )
