"""The reaper on a real server."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.engine.backend import Holder
from holdfast.engine.keys import ShardKeys, shard_of
from holdfast.engine.layout import CompiledEvent, compile_event
from holdfast.engine.reaper import REAP_BATCH, Reaper
from holdfast.engine.records import LogEntry, unpack_entry
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.loadtest.chaos.proxy import Proxy
from support.engine import SHARDS, Stage, document, event_keys, stage
from support.polling import eventually

INTERVAL_S = 0.02


def reaper_of(on: Stage) -> Reaper:
    return Reaper(on.redis, on.backend, shards=SHARDS, epoch=FIRST_EPOCH)


@asynccontextmanager
async def running(reaper: Reaper) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(reaper.run(INTERVAL_S))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def overdue_hold(on: Stage, event: CompiledEvent, seat_id: str) -> UUID:
    held = await on.backend.hold_seats(event, Holder(hold_id=uuid4(), user_id=uuid4()), seats=[event.seats[seat_id]])
    assert held.hold_id is not None
    await on.redis.zadd(event_keys(event).key("expiry"), {held.hold_id.bytes: 1})
    return held.hold_id


async def expiries(on: Stage) -> list[LogEntry]:
    """The expire entries of all shards."""
    entries: list[LogEntry] = []
    for shard in range(SHARDS):
        log = await on.redis.xrange(ShardKeys(shard, FIRST_EPOCH).key("log"))
        entries += [unpack_entry(*entry) for entry in log]
    return [entry for entry in entries if entry.operation == "expire"]


async def test_overdue_holds_of_every_event_and_shard_are_expired_and_no_others(redis_url: str) -> None:
    async with stage(redis_url) as on:
        # Given events in every shard, each with an overdue hold and one that lives,
        events = [compile_event(uuid4(), document()) for _ in range(40)]
        assert {shard_of(event.event_id, SHARDS) for event in events} == set(range(SHARDS))
        overdue = []
        for event in events:
            assert (await on.backend.open_event(event)).status == Status.DONE
            overdue.append(await overdue_hold(on, event, "A-1"))
            living = Holder(hold_id=uuid4(), user_id=uuid4())
            await on.backend.hold_seats(event, living, seats=[event.seats["A-2"]])

        # when the reaper comes by, then it takes exactly the overdue ones,
        assert await reaper_of(on).reap() == len(overdue)
        assert Counter(hold_id for entry in await expiries(on) for hold_id in entry.hold_ids) == Counter(overdue)
        for event in events:
            reading = await on.backend.read_event(event.organization_id, event.event_id, want_map=True)
            assert reading.map[:2] == b".h"

        # and has nothing to do when it comes again.
        assert await reaper_of(on).reap() == 0
        assert len(await expiries(on)) == len(events)


async def test_many_overdue_holds_are_taken_in_bounded_batches(redis_url: str) -> None:
    async with stage(redis_url, document(rows=13, per_row=10)) as on:
        held = await asyncio.gather(*(on.hold(seat_id) for seat_id in on.event.seats))
        await on.lapse(*(reply.hold_id for reply in held if reply.hold_id))
        assert await reaper_of(on).reap() == 130
        assert [len(entry.hold_ids) for entry in await expiries(on)] == [REAP_BATCH, REAP_BATCH, 130 - 2 * REAP_BATCH]


async def test_several_reapers_never_expire_a_hold_twice(redis_url: str) -> None:
    async with stage(redis_url, document(rows=50, per_row=10)) as on, Wire(redis_url, timeout_s=10) as wire:
        held = await asyncio.gather(*(on.hold(seat_id) for seat_id in on.event.seats))
        ids = [reply.hold_id for reply in held if reply.hold_id]
        await on.lapse(*ids)

        other = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
        reapers = [Reaper(on.redis, backend, shards=SHARDS, epoch=FIRST_EPOCH) for backend in (on.backend, other) * 3]
        expired = await asyncio.gather(*(reaper.reap() for reaper in reapers))

        assert sum(expired) == len(ids) == 500
        assert Counter(hold_id for entry in await expiries(on) for hold_id in entry.hold_ids) == Counter(ids)
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)
        assert reading.map.replace(b"|", b"") == b"." * 500
        assert reading.zones[0].held == 0


async def test_records_are_forgotten_when_their_time_is_over(redis_url: str) -> None:
    async with stage(redis_url) as on:
        user = uuid4()
        released, sold, live = [(await on.hold(seat_id, user=user)).hold_id for seat_id in ("A-1", "A-2", "A-3")]
        assert released
        assert sold
        assert live
        await on.backend.release_holds(on.event, [released], user_id=None, reason="user_cancelled")
        await on.backend.confirm_holds(on.event, [sold], sale="sale", user_id=None)

        # While the ended holds have time on record, the reaper leaves them alone;
        await reaper_of(on).reap()
        assert await on.redis.hmget(on.keys.key("holds"), [released.bytes, sold.bytes]) != [None, None]

        # afterwards they are gone, from the list of their user too, and what they had done stands.
        await on.age_ended()
        await reaper_of(on).reap()
        assert sorted(await on.redis.hkeys(on.keys.key("holds"))) == sorted([live.bytes, b"u" + user.bytes])
        assert await on.redis.hget(on.keys.key("holds"), b"u" + user.bytes) == live.bytes
        assert await on.redis.zcard(on.keys.key("ended")) == 0
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)
        assert reading.map[:3] == b".sh"


async def test_a_running_reaper_gives_seats_back_within_a_few_turns(redis_url: str) -> None:
    async with stage(redis_url) as on, running(reaper_of(on)):
        for _ in range(3):
            await overdue_hold(on, on.event, "A-1")

            async def is_free() -> bool:
                return await on.redis.getrange(on.keys.key("map"), 0, 0) == b"."

            await eventually(is_free, "the seat is free", within_s=50 * INTERVAL_S)
        assert len(await expiries(on)) == 3


async def test_a_running_reaper_survives_an_outage(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast.engine.reaper")
    async with stage(redis_url) as on, Proxy(redis_url) as proxy:
        redis: Redis = Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0))
        async with redis, Wire(proxy.url) as wire:
            backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
            async with running(Reaper(redis, backend, shards=SHARDS, epoch=FIRST_EPOCH)) as task:
                # Given a reaper whose server goes away,
                proxy.go_down()
                await eventually(lambda: caplog.records, "the reaper complains")
                held = await overdue_hold(on, on.event, "A-1")
                assert not task.done()

                # when the server is back, then the reaper does its work.
                proxy.come_up()

                async def expired() -> list[LogEntry]:
                    return await expiries(on)

                (entry,) = await eventually(expired, "the hold is expired")
                assert entry.hold_ids == (held,)


async def test_a_running_reaper_goes_on_while_only_the_wire_is_down(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.engine.reaper")
    async with stage(redis_url) as on, Proxy(redis_url) as proxy, Wire(proxy.url) as wire:
        backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
        await overdue_hold(on, on.event, "A-1")
        proxy.go_down()
        await eventually(lambda: not wire.connected, "the wire notices")
        async with running(Reaper(on.redis, backend, shards=SHARDS, epoch=FIRST_EPOCH)) as task:
            await eventually(lambda: caplog.records, "the reaper complains")
            assert not task.done()
            assert await expiries(on) == []
            proxy.come_up()
            await eventually(lambda: expiries(on), "the hold is expired")


async def test_a_closed_shard_does_not_keep_the_others_from_being_reaped(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.engine.reaper")
    async with stage(redis_url) as on:
        events = [compile_event(uuid4(), document()) for _ in range(20)]
        for event in events:
            await on.backend.open_event(event)
            await overdue_hold(on, event, "A-1")
        shard = shard_of(events[0].event_id, SHARDS)
        open_elsewhere = [event for event in events if shard_of(event.event_id, SHARDS) != shard]
        await on.redis.delete(ShardKeys(shard, FIRST_EPOCH).key("open"))

        assert await reaper_of(on).reap() == len(open_elsewhere)
        assert "fenced" in caplog.text
        assert {entry.event_id for entry in await expiries(on)} == {event.event_id for event in open_elsewhere}


async def test_a_running_reaper_that_is_told_to_stop_stops_whenever_that_is(redis_url: str) -> None:
    # With a timeout, redis-py waits for its socket in a way that can swallow a cancellation.
    async with stage(redis_url) as on, Redis.from_url(redis_url, socket_timeout=5) as redis:
        reaper = Reaper(redis, on.backend, shards=SHARDS, epoch=FIRST_EPOCH)
        for turns in range(30):
            reaping = asyncio.create_task(reaper.run(INTERVAL_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            reaping.cancel()
            async with asyncio.timeout(10):
                done, _ = await asyncio.wait([reaping])
            assert done == {reaping}
            assert reaping.cancelled()
