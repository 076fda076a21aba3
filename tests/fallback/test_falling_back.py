"""Redis dies in every way, Postgres takes over, and Redis comes back without a seat lost or shared."""

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from holdfast.engine.epochs import Mode
from holdfast.engine.errors import BackendError
from holdfast.engine.status import Status
from holdfast.loadtest.chaos.proxy import Proxy
from holdfast.persistence.modes import set_mode
from holdfast.persistence.transitions import Cause
from holdfast.persistence.verify import check_rows
from support.fallback import Fallback, Front, Valkey, replica_of
from support.polling import eventually


def killed_and_restarted(valkey: Valkey) -> None:
    valkey.kill()
    valkey.start()


def killed_and_empty(valkey: Valkey) -> None:
    valkey.kill()
    valkey.start(empty=True)


@pytest.mark.parametrize("accident", [killed_and_restarted, killed_and_empty])
async def test_a_restarted_server_is_built_anew_before_it_serves(
    shards: Fallback, valkey: Valkey, accident: Callable[[Valkey], None]
) -> None:
    """Given acknowledged holds, when Redis restarts, they are there in a new epoch, and nobody gets their seats."""
    event = shards.event
    async with shards.front() as front, shards.keeping():
        before = await front.sees(event, Mode.REDIS)
        held = await front.hold(event, "A-1")
        assert held.status is Status.DONE

        accident(valkey)
        after = await front.sees(event, Mode.REDIS, before.epoch)

        assert after.epoch > before.epoch
        taken = await front.hold(event, "A-1")
        assert taken.status is Status.SEAT_HELD_BY_ANOTHER_USER
        assert (await front.hold(event, "A-2")).status is Status.DONE
    assert await shards.findings() == ()


async def test_flushall_is_a_fence_trip_and_is_recovered_from(shards: Fallback) -> None:
    event = shards.event
    async with shards.front() as front, shards.keeping():
        before = await front.sees(event, Mode.REDIS)
        await front.hold(event, "A-1")

        await shards.servers.redis.flushall()
        await front.sees(event, Mode.REDIS, before.epoch)

        assert (await front.hold(event, "A-1")).status is Status.SEAT_HELD_BY_ANOTHER_USER
    assert await shards.findings() == ()


async def test_a_stale_replica_that_is_promoted_does_not_serve(shards: Fallback) -> None:
    """Given a replica that misses the last hold, when front ends are led to it, the hold's seat is still taken."""
    event = shards.event
    async with (
        replica_of(shards.redis_url) as (replica, stale),
        Proxy(shards.redis_url) as proxy,
        shards.front(proxy.url) as front,
    ):
        before = await front.sees(event, Mode.REDIS)
        async with shards.keeping():
            await stale.replicaof("NO", "ONE")
            held = await front.hold(event, "A-1")
            assert held.status is Status.DONE

            proxy.redirect(replica.url)
            proxy.cut()
            await front.sees(event, Mode.DB, before.epoch)

            assert (await front.hold(event, "A-1")).status is Status.SEAT_HELD_BY_ANOTHER_USER


async def test_a_killed_server_is_replaced_by_postgres_and_calls_say_so(shards: Fallback, valkey: Valkey) -> None:
    """Given callers under way, when Redis is killed, each gets a result or is told to come again; soon all succeed."""
    event = shards.event
    async with shards.front() as front, shards.keeping(recover_after_s=3_600):
        await front.sees(event, Mode.REDIS)
        valkey.kill()

        async def held() -> bool:
            try:
                return (await front.hold(event, "B-1")).status is Status.DONE
            except BackendError:
                return False

        await eventually(held, "Postgres holds a seat")
        assert (await shards.state()).mode is Mode.DB
        assert await shards.value("SELECT count(*) FROM transitions WHERE mode = 'db' AND actor LIKE 'vote of %'")
        async with shards.servers.pool.acquire() as connection:
            assert await check_rows(connection, None) == []


async def test_a_server_that_stalls_is_replaced_and_its_late_answers_count_for_nothing(
    shards: Fallback, valkey: Valkey
) -> None:
    """Given a frozen Redis with a hold under way, the same hold id is held once, in Postgres, also after the thaw."""
    event, hold_id, user = shards.event, uuid4(), uuid4()
    async with shards.front() as front:
        before = await front.sees(event, Mode.REDIS)
        valkey.freeze()
        try:

            async def held() -> bool:
                try:
                    reply = await front.hold(event, "A-1", hold_id=hold_id, user=user)
                except BackendError:
                    return False
                return reply.status.succeeded

            await eventually(held, "Postgres holds the seat")
        finally:
            valkey.thaw()
        async with shards.keeping():
            await front.sees(event, Mode.REDIS, before.epoch)
            again = await front.hold(event, "A-1", hold_id=hold_id, user=user)
            assert again.status is Status.REPEATED
            assert (await front.hold(event, "A-1")).status is Status.SEAT_HELD_BY_ANOTHER_USER
    assert await shards.value("SELECT count(*) FROM seat_holds WHERE hold_id = $1", hold_id) == 1
    assert await shards.findings() == ()


async def test_one_front_end_that_is_cut_off_drags_nobody_along(shards: Fallback) -> None:
    """Given two front ends, when one alone loses Redis, it turns its callers away, and the other goes on in Redis."""
    event = shards.event
    async with (
        Proxy(shards.redis_url) as proxy,
        shards.keeping(),
        shards.front(proxy.url) as lonely,
        shards.front() as well,
    ):
        before = await well.sees(event, Mode.REDIS)
        await lonely.sees(event, Mode.REDIS)
        proxy.go_down()

        async def turned_away() -> bool:
            return lonely.breakers.opinion(shards.shard) is not None

        await eventually(turned_away, "the breaker opens")
        with pytest.raises(BackendError):
            await lonely.hold(event, "A-1")
        assert (await well.hold(event, "A-1")).status is Status.DONE
        assert await shards.state() == before

        proxy.come_up()

        async def let_in() -> bool:
            return lonely.breakers.opinion(shards.shard) is None

        await eventually(let_in, "the breaker closes")
        assert (await lonely.hold(event, "A-2")).status is Status.DONE
        assert await shards.state() == before


async def test_callers_under_way_meet_every_change_of_mode_without_a_fault(shards: Fallback) -> None:
    """Given callers who never pause, when modes are toggled, what was acknowledged is there and the books balance."""
    event = shards.event
    acknowledged, stopped = [], False

    async def call(front: Front, number: int) -> None:
        seats = sorted(event.seats)
        while not stopped:
            hold_id, user = uuid4(), uuid4()
            try:
                reply = await front.hold(event, seats[number], hold_id=hold_id, user=user)
                if reply.status is Status.DONE:
                    acknowledged.append(hold_id)
                    released = await front.service.release_holds(
                        event, [hold_id], user_id=user, reason="user_cancelled"
                    )
                    assert released.status in (Status.DONE, Status.HOLD_RELEASED), released
            except BackendError:
                await asyncio.sleep(0.01)

    async with shards.front() as front, shards.keeping(recover_after_s=3_600):
        await front.sees(event, Mode.REDIS)
        callers = [asyncio.create_task(call(front, number)) for number in range(6)]
        for mode in (Mode.DB, Mode.REDIS, Mode.DB, Mode.REDIS):
            seen = len(acknowledged)
            await set_mode(shards.servers, mode, Cause("a test", "a test"), [shards.shard])
            await eventually(lambda seen=seen: len(acknowledged) > seen + 5, f"callers go on in mode {mode}")
        stopped = True
        await asyncio.gather(*callers)
    stored = await shards.value("SELECT count(DISTINCT hold_id) FROM seat_holds WHERE hold_id = ANY ($1)", acknowledged)
    assert stored == len(acknowledged)
    assert await shards.findings() == ()
