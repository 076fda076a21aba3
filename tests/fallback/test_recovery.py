"""A shard on its way back to Redis: interrupted anywhere, and what becomes of what was never persisted."""

import json
from uuid import uuid4

import pytest

from holdfast.engine.backend import Holder
from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.status import Status
from holdfast.persistence.modes import set_mode
from holdfast.persistence.recovery import recover, remove_old_epochs
from holdfast.persistence.sql import query
from holdfast.persistence.transitions import Cause, Moved, to_db
from support.commands import complete
from support.engine import SHARDS
from support.fallback import Fallback

CAUSE = Cause("a test", "a test")
STEPS = ("quarantine", "build", "seal", "delta", "compare", "open", "commit")


class Killed(Exception):
    """Ends a recovery as a crash would: nothing after it is done."""


async def in_redis(shards: Fallback, epoch: int, seat: str) -> Status:
    """Try to hold a seat under an epoch, whatever Postgres says of it."""
    backend = RedisBackend(shards.servers.wire, shards=SHARDS, epoch=epoch)
    holder = Holder(hold_id=uuid4(), user_id=uuid4())
    return (await backend.hold_seats(shards.event, holder, seats=[shards.event.seats[seat]])).status


async def run_recovery(shards: Fallback, before: ShardState, until: str = "") -> None:
    async def step(name: str) -> None:
        if name == until:
            raise Killed

    servers = shards.servers
    await recover(
        servers.redis,
        servers.wire,
        servers.pool,
        shards=SHARDS,
        shard=shards.shard,
        before=before,
        cause=CAUSE,
        step=step,
    )


@pytest.mark.parametrize("step", STEPS)
async def test_a_recovery_that_dies_anywhere_does_no_harm_and_the_next_one_succeeds(
    shards: Fallback, step: str
) -> None:
    first = await shards.state()
    assert await in_redis(shards, first.epoch, "A-1") is Status.DONE
    moved = await to_db(shards.servers.pool, shards.shard, first, CAUSE, redis=shards.servers.redis)
    assert (moved.drained, moved.left) == (1, 0)
    assert await shards.value("SELECT count(*) FROM seat_holds WHERE status = 'active'") == 1
    with pytest.raises(Killed):
        await run_recovery(shards, moved.after, until=step)
    assert await shards.state() == moved.after

    await run_recovery(shards, moved.after)

    after = await shards.state()
    assert after.mode is Mode.REDIS
    assert await in_redis(shards, after.epoch, "A-1") is Status.SEAT_HELD_BY_ANOTHER_USER
    assert await shards.findings() == ()


async def test_what_was_not_drained_is_quarantined_and_never_applied(shards: Fallback) -> None:
    first = await shards.state()
    assert await in_redis(shards, first.epoch, "A-1") is Status.DONE
    moved = await to_db(shards.servers.pool, shards.shard, first, CAUSE)

    await run_recovery(shards, moved.after)

    assert await shards.value("SELECT count(*) FROM quarantine WHERE epoch = $1", first.epoch) == 1
    assert await shards.value("SELECT count(*) FROM seat_holds") == 0
    after = await shards.state()
    assert await in_redis(shards, after.epoch, "A-1") is Status.DONE


async def test_a_rebuild_mends_a_log_with_a_gap(shards: Fallback) -> None:
    """Given a shard that is halted by a gap in its log, what is after that is kept aside, and Redis serves again."""
    first, keys = await shards.state(), await shards.keys()
    for seat in ("A-1", "A-2", "A-3"):
        assert await in_redis(shards, first.epoch, seat) is Status.DONE
    entries = await shards.servers.redis.xrevrange(keys.key("log"))
    await shards.servers.redis.xdel(keys.key("log"), entries[1][0])
    await shards.drain()
    assert await shards.value(query("list_halts")) == shards.shard

    await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard], anew=True)

    after = await shards.state()
    assert await shards.value(query("list_halts")) is None
    assert await shards.value("SELECT count(*) FROM quarantine WHERE epoch = $1", first.epoch) == 1
    seats = [await in_redis(shards, after.epoch, seat) for seat in ("A-1", "A-2", "A-3")]
    assert seats == [Status.SEAT_HELD_BY_ANOTHER_USER, Status.DONE, Status.DONE]


async def test_a_change_is_made_on_the_state_that_was_seen_or_not_at_all(shards: Fallback) -> None:
    first = await shards.state()
    moved = await to_db(shards.servers.pool, shards.shard, first, CAUSE)

    with pytest.raises(Moved):
        await to_db(shards.servers.pool, shards.shard, first, CAUSE)

    assert await shards.state() == moved.after


async def test_old_epochs_are_removed_and_the_current_one_stays(shards: Fallback) -> None:
    first = await shards.state()
    await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard], anew=True)
    after = await shards.state()

    assert await remove_old_epochs(shards.servers.redis, {shards.shard: after.epoch}) > 0

    assert not await shards.servers.redis.keys(f"hf:{{s{shards.shard}}}:e{first.epoch}:*")
    assert await in_redis(shards, after.epoch, "A-1") is Status.DONE


async def test_the_commands_show_change_and_rebuild(shards: Fallback) -> None:
    environment = {"HOLDFAST_REDIS_URL": shards.redis_url, "HOLDFAST_POSTGRES_DSN": shards.dsn}
    down = complete("mode", "db", "--reason", "an upgrade", "--shard", "0", "--json", **environment)
    assert down.returncode == 0, down.stderr
    (shard,) = json.loads(down.stdout)
    assert (shard["mode"], shard["pinned"], shard["reason"]) == ("db", True, "an upgrade")

    assert complete("mode", "redis", "--reason", "x", "--shard", "0", "--epoch", "1", **environment).returncode == 1
    assert complete("mode", "db", **environment).returncode == 1
    status = json.loads(complete("mode", "--json", **environment).stdout)
    assert [each["mode"] for each in status["shards"]] == ["db", *["redis"] * (SHARDS - 1)]

    rebuilt = complete("rebuild", "--json", **environment)
    assert rebuilt.returncode == 0, rebuilt.stderr
    done = json.loads(rebuilt.stdout)
    assert done["digest_before"] == done["digest_after"]
    assert {each["mode"] for each in done["shards"]} == {"redis"}
