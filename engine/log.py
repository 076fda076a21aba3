"""Following the logs of the shards as they grow."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from holdfast.engine.keys import ShardKeys, epoch_of_key, shard_of_key
from holdfast.engine.wire import Wire

_BLOCK_MS = 1000
_COUNT = 1000

# To wait for an entry on many logs, and to be woken, costs more than the entry: in a rush they come by the dozen.
_GATHER_S = 0.005

Fields = Mapping[bytes, bytes]


def place_of(log: bytes, entry: bytes) -> tuple[int, int, int]:
    """The shard and epoch of a log, and the number of an entry of it; 0 before the first."""
    return shard_of_key(log), epoch_of_key(log), int(entry.partition(b"-")[2] or 0)


async def follow_logs(
    wire: Wire, epochs: Mapping[int, int], places: dict[bytes, bytes] | None = None
) -> AsyncGenerator[list[Fields], None]:
    """Yield what is appended to the logs from now on, in order within each shard; empty when a second passes quietly.

    `epochs` has the epoch of each shard to follow, at least one. Entries come as Redis has them, a few milliseconds
    late; `engine/records` unpacks them. The first batch is empty and comes as soon as it is known where to read on.
    Nobody else can use the wire meanwhile, because each call waits at the server for what comes.
    `places` is kept up with the last entry of each log, by the log's key, that was yielded or came before.
    """
    places = {} if places is None else places
    for shard, epoch in epochs.items():
        key = ShardKeys(shard, epoch).key("log")
        last = await wire.call("XREVRANGE", key, "+", "-", "COUNT", 1)
        places[key] = last[0][0] if last else b"0"
    yield []
    while True:
        read = ("XREAD", "COUNT", _COUNT, "BLOCK", _BLOCK_MS, "STREAMS")
        batches: Any = await wire.call(*read, *places, *places.values()) or []
        entries: list[Fields] = []
        for key, batch in batches:
            places[key] = batch[-1][0]
            entries += [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in batch]
        yield entries
        if entries:
            await asyncio.sleep(_GATHER_S)
