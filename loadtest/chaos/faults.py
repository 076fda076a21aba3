"""The faults: each breaks something while buyers buy, and mends it again unless that is for Holdfast to do.

A fault returns once what it broke is mended or for Holdfast to mend. What it changes in what may be expected, it says
in its `Expectation`.

Clocks are not moved: a script's clock is the server's, and every server here runs on the same machine. What a wrong
clock does is done instead: the ends of live holds are moved in Redis, which then expires holds too early or too late.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from redis.asyncio import Redis

from holdfast.errors import OperatorError
from holdfast.loadtest.chaos.proxy import Proxy
from holdfast.loadtest.chaos.stack import Stack
from holdfast.persistence.recovery import RECOVERY_LOCKS

BREAK_S = 2.5
STALL_S = 4.0
DELAY_S = 0.15
CLOCK_AHEAD_S = 75.0
WRONG_CLOCK_S = 1.0
CHANGE_S = 60.0
IN_TRANSITION_S = 0.15
OPERATORS_PATIENCE = 5

_TAKEN_OVER = "SELECT EXISTS (SELECT FROM control WHERE mode = 'db')"
# Or none is left to recover: then whoever waits has come too late, and need not wait longer.
_RECOVERING = (
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::bigint::oid)"
    " OR NOT EXISTS (SELECT FROM control WHERE mode = 'db')"
)
_PUT_BACK = """
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0) == tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[1])
end
"""
_CHANGING = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holdfast mode')"


# The ends of holds, ms since 1970, by key and hold.
Moved = dict[tuple[bytes, bytes], int]


class Expectation(msgspec.Struct, frozen=True):
    """What a fault changes for the checker: see `checker.Limits`."""

    breaking: frozenset[int] = frozenset()
    early_s: float = 0.0


NORMAL = Expectation()


class Fault(msgspec.Struct, frozen=True):
    """A fault by what it does. One that `goes_on` strikes again and again, for as long as a round is to last."""

    summary: str
    strike: Callable[[Stack, random.Random], Awaitable[None]]
    expectation: Expectation = NORMAL
    goes_on: bool = False


async def _cut(stack: Stack, _: random.Random) -> None:
    for proxy in stack.proxies:
        proxy.cut()


async def _unreachable(stack: Stack, _: random.Random) -> None:
    for proxy in stack.proxies:
        proxy.go_down()
    await asyncio.sleep(BREAK_S)
    for proxy in stack.proxies:
        proxy.come_up()


async def _slow(stack: Stack, _: random.Random) -> None:
    for proxy in stack.proxies:
        proxy.delay_s = DELAY_S
    await asyncio.sleep(BREAK_S)
    for proxy in stack.proxies:
        proxy.delay_s = 0.0


async def _stall(stack: Stack, _: random.Random) -> None:
    await _while(stack, Proxy.stall)


async def _stalled_answers(stack: Stack, _: random.Random) -> None:
    await _while(stack, Proxy.stall_answers)


async def _half_open(stack: Stack, _: random.Random) -> None:
    await _while(stack, Proxy.half_open)


async def _while(stack: Stack, misbehave: Callable[[Proxy], None]) -> None:
    for proxy in stack.proxies:
        misbehave(proxy)
    await asyncio.sleep(STALL_S)
    for proxy in stack.proxies:
        proxy.flow()
        # What was swallowed leaves both ends of a connection waiting for each other.
        proxy.cut()


async def _one_front_end_alone(stack: Stack, chance: random.Random) -> None:
    proxy = chance.choice(stack.front_end_proxies)
    proxy.go_down()
    await asyncio.sleep(BREAK_S)
    proxy.come_up()


async def _kill_redis(stack: Stack, _: random.Random) -> None:
    await stack.kill_redis()
    await asyncio.sleep(BREAK_S)
    await stack.start_redis()


async def _kill_redis_shortly(stack: Stack, _: random.Random) -> None:
    await stack.kill_redis()
    await stack.start_redis()


async def _freeze_redis(stack: Stack, _: random.Random) -> None:
    os.kill(stack.redis.pid, signal.SIGSTOP)
    await asyncio.sleep(STALL_S)
    os.kill(stack.redis.pid, signal.SIGCONT)


async def _truncated_aof(stack: Stack, chance: random.Random) -> None:
    await stack.kill_redis()
    stack.truncate_aof(chance.randrange(2_000, 40_000))
    await stack.start_redis()


async def _empty_redis(stack: Stack, _: random.Random) -> None:
    await stack.kill_redis()
    await stack.start_redis(empty=True)


async def _flushall(stack: Stack, _: random.Random) -> None:
    async with stack.client() as client:
        await client.flushall()


async def _stale_replica(stack: Stack, _: random.Random) -> None:
    """A replica stops following, the primary goes on for a while and dies, and the replica takes its place."""
    replica = await stack.start_replica()
    async with stack.client_of(replica) as client:
        await client.replicaof("NO", "ONE")
    await asyncio.sleep(1.0)
    await stack.kill_redis()
    stack.lead_to(replica)


async def _fail_back(stack: Stack, _: random.Random) -> None:
    """The primary is made to follow a stale replica and then to lead again, without a restart."""
    replica = await stack.start_replica()
    async with stack.client_of(replica) as stale, stack.client() as client:
        await stale.replicaof("NO", "ONE")
        await asyncio.sleep(1.0)
        await stack.follow(client, replica)
        await client.replicaof("NO", "ONE")
    # As Sentinel does when it changes a server's role.
    for proxy in stack.proxies:
        proxy.cut()
    await stack.in_thread(replica.stop)


async def _postgres_restart(stack: Stack, _: random.Random) -> None:
    await stack.stop_postgres()
    await asyncio.sleep(BREAK_S / 2)
    await stack.start_postgres()


async def _kill_keeper(stack: Stack, chance: random.Random) -> None:
    number = chance.randrange(stack.layout.keepers)
    await stack.kill_keeper(number)
    await asyncio.sleep(BREAK_S / 2)
    await stack.start_keeper(number)


async def _kill_all_keepers(stack: Stack, _: random.Random) -> None:
    for number in range(stack.layout.keepers):
        await stack.kill_keeper(number)
    for number in range(stack.layout.keepers):
        await stack.start_keeper(number)


async def _kill_front_end(stack: Stack, _: random.Random) -> None:
    await stack.kill_front_end(0)
    await stack.start_front_end(0)


async def _kill_recoverers(stack: Stack, _: random.Random) -> None:
    """Redis restarts, and the keepers are killed in the middle of bringing its shards back."""
    await stack.kill_redis()
    await stack.start_redis()
    await stack.watch(_TAKEN_OVER, "Postgres serves a shard", CHANGE_S)
    await stack.watch(_RECOVERING, "a shard is being recovered", CHANGE_S, RECOVERY_LOCKS)
    await asyncio.gather(*(stack.kill_keeper(number) for number in range(stack.layout.keepers)))
    for number in range(stack.layout.keepers):
        await stack.start_keeper(number)


async def _toggle(stack: Stack, _: random.Random) -> None:
    for mode in ("db", "redis"):
        await _change_mode(stack, mode, "--wait")


async def _postgres_restart_in_transition(stack: Stack, chance: random.Random) -> None:
    """Postgres goes away while an operator changes the mode, there and back; the operator repeats what has failed."""
    for mode in ("db", "redis"):
        change = asyncio.create_task(_change_mode(stack, mode))
        with suppress(OperatorError):
            await stack.watch(_CHANGING, "the operator is at work", CHANGE_S)
            await asyncio.sleep(chance.uniform(0, IN_TRANSITION_S))
            await stack.stop_postgres()
            await stack.start_postgres()
            await change
    for _turn in range(OPERATORS_PATIENCE):
        with suppress(OperatorError):
            await _change_mode(stack, "redis")
            return


async def _change_mode(stack: Stack, mode: str, *flags: str) -> None:
    await stack.command("mode", mode, "--reason", "chaos", *flags, within_s=CHANGE_S)


async def _clock_ahead(stack: Stack, _: random.Random) -> None:
    await _move_ends(stack, -CLOCK_AHEAD_S)


async def _clock_behind(stack: Stack, _: random.Random) -> None:
    await _move_ends(stack, CLOCK_AHEAD_S)


async def _move_ends(stack: Stack, by_s: float) -> None:
    """Move the ends of all live holds in Redis for a while, and back, as if its clock were wrong and then right."""
    async with stack.client() as client:
        moved = await move_ends(client, by_s)
        await asyncio.sleep(WRONG_CLOCK_S)
        await move_back(client, moved, by_s)


async def move_ends(client: Redis, by_s: float) -> Moved:
    """Move the ends of all live holds; returns where each is now, by its key and itself."""
    moved: Moved = {}
    async for key in client.scan_iter(match="hf:{s*}:e*:expiry"):
        holds: Any = await client.zrange(key, 0, -1)
        for hold in holds:
            end_ms = await client.zadd(key, {hold: by_s * 1000}, xx=True, incr=True)
            if end_ms is not None:
                moved[key, hold] = int(end_ms)
    return moved


async def move_back(client: Redis, moved: Moved, by_s: float) -> None:
    """Undo that, but for the ends that were extended since: those were told to buyers, and are in Postgres too."""
    put_back = client.register_script(_PUT_BACK)
    for (key, hold), end_ms in moved.items():
        await put_back(keys=[key], args=[hold, end_ms, end_ms - int(by_s * 1000)])


FAULTS: dict[str, Fault] = {
    "cut": Fault("every connection to Redis is cut", _cut),
    "unreachable": Fault("Redis cannot be reached for some seconds", _unreachable),
    "slow": Fault("Redis answers late", _slow),
    "stall": Fault("connections to Redis stay open and pass nothing on", _stall),
    "stalled-answers": Fault("Redis is asked and its answers are kept back", _stalled_answers),
    "half-open": Fault("what is sent to Redis and back is swallowed", _half_open),
    "one-front-end": Fault("one front end alone cannot reach Redis", _one_front_end_alone),
    "kill-redis": Fault("Redis is killed and comes back after some seconds with its append-only file", _kill_redis),
    "restart-redis": Fault("Redis is killed and comes back at once with its append-only file", _kill_redis_shortly),
    "freeze-redis": Fault("Redis is stopped (SIGSTOP) and goes on", _freeze_redis),
    "truncated-aof": Fault("Redis is killed and comes back without the end of its file", _truncated_aof),
    "empty-redis": Fault("Redis is killed and comes back empty", _empty_redis),
    "flushall": Fault("Redis is emptied while it runs", _flushall),
    "stale-replica": Fault("Redis dies and a replica that has fallen behind takes its place", _stale_replica),
    "fail-back": Fault("Redis follows a replica that has fallen behind and leads again", _fail_back),
    "restart-postgres": Fault("Postgres is stopped and started", _postgres_restart),
    "kill-keeper": Fault("a keeper is killed, and another started later", _kill_keeper),
    "kill-keepers": Fault("all keepers are killed, and others started", _kill_all_keepers),
    "kill-recoverers": Fault("Redis restarts, and the keepers are killed while they recover it", _kill_recoverers),
    "kill-front-end": Fault(
        "a front end is killed, and another started", _kill_front_end, Expectation(breaking=frozenset({0}))
    ),
    "toggle-mode": Fault(
        "an operator changes to Postgres and back, again and again for the whole duration", _toggle, goes_on=True
    ),
    "postgres-in-transition": Fault(
        "Postgres is restarted while an operator changes the mode", _postgres_restart_in_transition
    ),
    "clock-ahead": Fault(
        "Redis's clock is ahead: it expires holds early", _clock_ahead, Expectation(early_s=CLOCK_AHEAD_S)
    ),
    "clock-behind": Fault("Redis's clock is behind: it keeps holds too long", _clock_behind),
}
