"""Following the logs of the shards as they grow."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from redis.asyncio import Redis

from holdfast.engine.cancellation import honour_cancellation
from holdfast.engine.keys import ShardKeys
from holdfast.engine.records import LogEntry, unpack_entry

_BLOCK_MS = 1000
_COUNT = 1000


async def follow_logs(redis: Redis, epochs: Mapping[int, int]) -> AsyncGenerator[tuple[LogEntry, ...], None]:
    """Yield what is appended to the logs from now on, in order within each shard; empty when a second passes quietly.

    `epochs` has the epoch of each shard to follow, at least one. The first batch is empty and comes as soon as the
    places to read from are known.
    """
    places: dict[Any, Any] = {}
    for shard, epoch in epochs.items():
        key = ShardKeys(shard, epoch).key("log")
        last = await redis.xrevrange(key, count=1)
        places[key] = last[0][0] if last else "0"
    yield ()
    while True:
        honour_cancellation()
        batches: Any = await redis.xread(places, count=_COUNT, block=_BLOCK_MS) or []
        entries: list[LogEntry] = []
        for key, batch in batches:
            places[key] = batch[-1][0]
            entries += [unpack_entry(stream_id, fields) for stream_id, fields in batch]
        yield tuple(entries)
