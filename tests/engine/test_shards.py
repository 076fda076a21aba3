"""Opening the shards of a server."""

import pytest
from redis.asyncio import Redis

from holdfast.engine.keys import SHARD_COUNT, ShardKeys
from holdfast.engine.shards import FIRST_EPOCH, ShardCountError, open_shards
from holdfast.lua import scripts
from support.engine import SHARDS, stage


async def test_every_shard_is_open_with_the_identity_of_its_server_and_all_scripts(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
        await redis.script_flush()
        await open_shards(redis, SHARDS)

        run_id, history = (await redis.info("server"))["run_id"], (await redis.info("replication"))["master_replid"]
        incarnation = f"{run_id}.{history}".encode()
        for shard in range(SHARDS):
            keys = ShardKeys(shard, FIRST_EPOCH)
            names = (keys.key(what) for what in ("open", "run", "base"))
            assert await redis.mget(*names) == [b"%d" % FIRST_EPOCH, incarnation, b"0"]
        assert all(await redis.script_exists(*(script.sha for script in scripts().values())))
        assert await redis.get(SHARD_COUNT) == b"%d" % SHARDS
        # Nothing but that: no shard more, and no other epoch.
        assert await redis.dbsize() == 3 * SHARDS + 1


async def test_opening_again_changes_nothing(redis_url: str) -> None:
    async with stage(redis_url) as on:
        await on.hold("A-1")
        before = await on.dump()
        await open_shards(on.redis, SHARDS)
        assert await on.dump() == before


@pytest.mark.parametrize("other", [SHARDS - 1, SHARDS + 1])
async def test_another_number_of_shards_is_refused_and_nothing_is_touched(redis_url: str, other: int) -> None:
    async with stage(redis_url) as on:
        before = await on.dump()
        with pytest.raises(ShardCountError, match=rf"set up with {SHARDS} shards.*HOLDFAST_SHARDS={SHARDS}\."):
            await open_shards(on.redis, other)
        assert await on.dump() == before
