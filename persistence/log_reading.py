"""Reading logs: XREAD without what redis-py does around a command, which takes longer than the command."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import hiredis
from redis.asyncio import Redis

from holdfast.persistence.batches import RawEntry


async def read_logs(
    redis: Redis, places: Mapping[bytes, str], *, count: int, block_ms: int
) -> dict[bytes, Sequence[RawEntry]]:
    """What follows these places, by log, at most `count` entries of each; waits so long for the first of them.

    Raises a RedisError if that cannot be read. It is not tried again.
    """
    words = (b"XREAD", b"COUNT", count, b"BLOCK", block_ms, b"STREAMS", *places, *places.values())
    # The annotation of hiredis speaks of a tuple of one word.
    command = hiredis.pack_command(cast(Any, words))
    # The pool has no annotations.
    pool: Any = redis.connection_pool
    connection = await pool.get_connection()
    try:
        await connection.send_packed_command(command, check_health=False)
        # A map or, in the older protocol, pairs.
        answer: Any = dict(await connection.read_response() or ())
    except BaseException:
        # An answer that nobody waits for any more would be taken for the next one.
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)
    return {log: [(place, _fields(flat)) for place, flat in entries] for log, entries in answer.items()}


def _fields(flat: Sequence[bytes]) -> Mapping[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
