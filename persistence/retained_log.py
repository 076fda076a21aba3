"""Reading what the log still has, for those who look back at it."""

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from holdfast.engine.keys import ShardKeys, epoch_of_key
from holdfast.persistence.batches import RawEntry, gather
from holdfast.persistence.operations import Operation

_COUNT = 1_000
_SCOPE_AT = 8


class LogGap(Exception):
    """The log has not the entries it should have; the text is one sentence for the operator."""


async def read_log(redis: Redis, shard: ShardKeys, after: int, to: int) -> AsyncIterator[RawEntry]:
    """The entries of a shard's log above `after`, up to and including `to`, as far as they are retained."""
    while after < to:
        entries: Any = await redis.xrange(
            shard.key("log"), min=f"({shard.epoch}-{after}", max=f"{shard.epoch}-{to}", count=_COUNT
        )
        for entry in entries:
            yield entry
        if len(entries) < _COUNT:
            return
        after = number_of(entries[-1])


async def read_operations(redis: Redis, shard: ShardKeys, after: int, to: int) -> list[Operation]:
    """The operations above `after` up to `to`, which must all be there. What cannot be read is left out."""
    return _whole(shard, after, to, [entry async for entry in read_log(redis, shard, after, to)])


async def read_retained(redis: Redis, shard: ShardKeys, to: int) -> tuple[int, list[Operation]]:
    """The number before the oldest entry that is retained, and the operations from there up to `to`."""
    entries = [entry async for entry in read_log(redis, shard, 0, to)]
    after = number_of(entries[0]) - 1 if entries else to
    return after, _whole(shard, after, to, entries)


async def first_number(redis: Redis, shard: ShardKeys) -> int:
    """The number of the oldest entry that is retained, or 0 if there is none."""
    entries: Any = await redis.xrange(shard.key("log"), count=1)
    return number_of(entries[0]) if entries else 0


async def last_epoch(redis: Redis, shard: int) -> int:
    """The latest epoch of a shard that is, or was, in service on this server, or 0 if there is none."""
    names = [name async for name in redis.scan_iter(match=f"hf:{{s{shard}}}:e*:run", count=_COUNT)]
    return max((epoch_of_key(name) for name in names), default=0)


async def last_number(redis: Redis, shard: ShardKeys) -> int:
    """The number of the last entry that was ever written."""
    return int(await redis.get(shard.key("seq")) or 0)


def _whole(shard: ShardKeys, after: int, to: int, entries: Sequence[RawEntry]) -> list[Operation]:
    found = gather(shard.shard, shard.epoch, after, entries)
    if found.gap or found.last_seq < to:
        missing = f"{shard.epoch}-{found.last_seq + 1}"
        raise LogGap(f"The log of shard {shard.shard} has no entry {missing}, though its number was given.")
    return list(found.operations)


def number_of(entry: RawEntry) -> int:
    return int(entry[0].partition(b"-")[2])


def is_of(entry: RawEntry, event_id: UUID) -> bool:
    """Whether an entry is about an event. One without a readable head may be about any."""
    scope = entry[1].get(b"head", b"")[_SCOPE_AT:]
    return len(scope) != 32 or scope[16:] == event_id.bytes
