"""Opening the shards of a server for service: the fence, the server's identity, the scripts."""

from redis.asyncio import Redis

from holdfast.engine.keys import SHARD_COUNT, ShardKeys
from holdfast.lua import scripts

FIRST_EPOCH = 1


class ShardCountError(Exception):
    """The server holds data spread over another number of shards; the text is one sentence for the operator."""


async def open_shards(redis: Redis, shards: int, epoch: int = FIRST_EPOCH) -> None:
    """Put every shard into service on this server, under the epoch given, and load the scripts.

    The `run` key says on which incarnation of the server the epoch was opened. A front end that meets a server without
    the scripts compares the two, and does not serve from one that is not the same.
    """
    await redis.set(SHARD_COUNT, shards, nx=True)
    stored = int(await redis.get(SHARD_COUNT) or 0)
    if stored != shards:
        raise ShardCountError(
            f"This Redis was set up with {stored} shards; start Holdfast with HOLDFAST_SHARDS={stored}."
        )
    run_id = (await redis.info("server"))["run_id"]
    for script in scripts().values():
        await redis.script_load(script.source)
    async with redis.pipeline(transaction=False) as pipeline:
        for shard in range(shards):
            keys = ShardKeys(shard, epoch)
            pipeline.set(keys.key("run"), run_id)
            pipeline.set(keys.key("open"), epoch)
        await pipeline.execute()
