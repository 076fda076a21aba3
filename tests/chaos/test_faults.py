"""Every fault once under traffic, for some seconds: nothing that buyers were told is untrue, and service comes back."""

import asyncio
import random

import pytest
from chaos.conftest import SoundStack
from redis.asyncio import Redis

from holdfast.engine.acks import Ack
from holdfast.engine.policy import AckRule
from holdfast.loadtest.chaos.checker import Rule
from holdfast.loadtest.chaos.faults import FAULTS, Fault, move_back, move_ends
from holdfast.loadtest.chaos.rounds import Plan, describe, play_round
from holdfast.loadtest.chaos.stack import Stack

pytestmark = pytest.mark.asyncio(loop_scope="session")

DURATION_S = 2.0
BUYERS = 6
SEED = 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_breaks_no_promise(sound_stack: SoundStack, fault: str) -> None:
    stack = await sound_stack()
    played = await play_round(stack, Plan(fault=fault, seed=SEED, duration_s=DURATION_S, buyers=BUYERS))
    assert played.violations == (), f"{describe(played)}\n{stack.output()}"
    assert played.acknowledged > 0


async def test_a_hold_in_redis_that_is_called_durable_is_found_to_be_lost(sound_stack: SoundStack) -> None:
    async def lose_the_log(stack: Stack, _: random.Random) -> None:
        """Nothing is persisted for a while, and then Redis is gone."""
        stack.keeper_proxy.stall()
        await asyncio.sleep(1.0)
        await stack.kill_redis()
        await stack.start_redis(empty=True)
        stack.keeper_proxy.flow()
        stack.keeper_proxy.cut()

    # Given an event whose holds are acknowledged by Redis, and a checker that takes that for a promise,
    plan = Plan(
        fault="lost log",
        seed=SEED,
        duration_s=DURATION_S,
        buyers=BUYERS,
        ack=AckRule.REDIS,
        durable=frozenset(Ack),
    )
    # when Redis loses what was not persisted, then the checker finds it.
    played = await play_round(await sound_stack(), plan, Fault("the log is lost", lose_the_log))
    assert Rule.LOST_HOLD in {violation.rule for violation in played.violations}


async def test_a_clock_that_is_put_right_leaves_alone_what_was_extended_meanwhile(redis_url: str) -> None:
    key = b"hf:{s0}:e1:org:o:event:e:expiry"
    async with Redis.from_url(redis_url) as client:
        await client.flushall()
        await client.zadd(key, {"kept": 1_000, "extended": 1_000, "ended": 1_000})
        moved = await move_ends(client, 75.0)
        assert dict(await client.zrange(key, 0, -1, withscores=True))[b"kept"] == 76_000

        await client.zadd(key, {"extended": 376_000})
        await client.zrem(key, "ended")
        await move_back(client, moved, 75.0)

        assert await client.zrange(key, 0, -1, withscores=True) == [(b"kept", 1_000), (b"extended", 376_000)]
