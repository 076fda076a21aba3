"""How far the log is persisted, and whether Redis and Postgres agree, as `holdfast status` tells it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from holdfast.engine.epochs import Epochs
from holdfast.engine.hot_cache import HotCache
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.wire import Wire
from holdfast.persistence.ballot import FRONT_END
from holdfast.persistence.digest import clock, digest
from holdfast.persistence.event_changes import follow_event_changes
from holdfast.persistence.hot_counts import ASK_CHANNEL, HotTeller, ask_hot_counts
from holdfast.persistence.pool import connect
from holdfast.persistence.sql import query
from holdfast.persistence.status import EventStatus, HotStatus, ShardStatus, SystemStatus, read_status
from support.engine import SHARDS
from support.operating import operate
from support.persisting import Rig, append, rigged, running
from support.polling import eventually
from support.scripts import held, places_held, sell
from support.workload import buyers, mixed


async def status_of(rig: Rig, patience_s: float = 0.1) -> SystemStatus:
    connection = await connect(rig.dsn, name="status", statement_timeout_ms=None)
    try:
        return await read_status(rig.redis, connection, SHARDS, patience_s=patience_s)
    finally:
        await connection.close()


async def own(rig: Rig) -> tuple[ShardStatus, EventStatus]:
    status = await status_of(rig)
    (event,) = status.events
    return status.shards[rig.shard], event


async def test_what_is_persisted_agrees(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await held(rig.on, "A-1", "A-2")
        await sell(rig.on, await places_held(rig.on, 3))
        await rig.drain()

        shard, event = await own(rig)
        healthy = (await status_of(rig)).healthy

    assert (shard.mode, shard.epoch, shard.open) == ("redis", 1, True)
    assert (shard.log_entries, shard.last_seq, shard.mark, shard.lag_entries, shard.lag_seconds) == (4, 4, 4, 0, 0)
    assert event.agreement == "agrees"
    assert event.redis == event.postgres
    assert (event.postgres.held, event.postgres.sold) == (2, 3)
    assert healthy


async def test_the_lag_is_counted_in_entries_and_seconds(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        await held(rig.on, "A-1")
        await held(rig.on, "A-2")

        async def lagging() -> ShardStatus | None:
            shard, event = await own(rig)
            assert event.agreement == "behind"
            return shard if shard.lag_seconds >= 0.2 else None

        shard = await eventually(lagging, "the first entry that waits grows older")
    assert (shard.lag_entries, shard.last_seq, shard.mark) == (2, 3, 1)


async def test_entries_of_other_events_do_not_put_an_event_behind(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        other = await rig.open_other(same_shard=True)
        await rig.drain()
        await held(rig.on, "A-1")

        agreements = {event.event_id: event.agreement for event in (await status_of(rig)).events}

    assert agreements == {rig.event.event_id: "behind", other.event_id: "agrees"}


async def test_it_waits_for_a_persister_that_is_coming(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        async with running(rig.persister().run()):
            await held(rig.on, "A-1")
            (event,) = (await status_of(rig, patience_s=10)).events
    assert event.agreement == "agrees"


async def test_a_difference_is_told(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        await rig.execute("UPDATE zones SET sold = 1 WHERE zone = 1")

        status = await status_of(rig)

    assert [event.agreement for event in status.events] == ["differs"]
    assert not status.healthy


async def test_an_event_that_is_not_open_has_no_counts_in_redis(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        await rig.redis.delete(rig.on.keys.key("counts"))

        (event,) = (await status_of(rig)).events

    assert (event.agreement, event.redis) == ("not open", None)


async def test_dead_letters_and_refusals_are_counted(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await append(rig, {b"op": b"nonsense"})
        await rig.drain()
        await rig.execute(
            "INSERT INTO rejections (shard, epoch, seq, organization_id, event_id, hold_id, operation, reason) "
            "VALUES ($1, 1, 2, $2, $3, $4, 'hold', 'seat_not_available')",
            rig.shard,
            rig.event.organization_id,
            rig.event.event_id,
            uuid4(),
        )

        shard, _ = await own(rig)

    assert (shard.dead_letters, shard.uncompensated) == (1, 1)


async def test_before_the_first_persister_nothing_is_opened(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.execute("DELETE FROM control")
        shard, event = await own(rig)

    assert (shard.mode, shard.mark, shard.lag_entries) == ("unopened", 0, 0)
    assert event.agreement == "not in Redis"


async def test_it_answers_under_traffic(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        async with running(rig.persister().run(), buyers(rig, 8)):
            for _ in range(10):
                (event,) = (await status_of(rig)).events
                assert event.agreement in ("agrees", "behind")


async def test_the_digest_sees_every_table_and_no_bookkeeping(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await mixed(rig)
        await rig.drain()
        connection = await connect(database_dsn, name="digest", statement_timeout_ms=None)
        try:
            at = await clock(connection)
            before = await digest(connection, at)
            for change in (
                "UPDATE seats SET version = version + 1, locked_at = now()",
                "UPDATE seat_holds SET updated_at = now(), seq = seq + 1",
                "UPDATE seat_holds SET ended_at = now() WHERE status = 'expired'",
            ):
                await connection.execute(change)
                assert await digest(connection, at) == before, change
            for change in (
                "UPDATE seat_holds SET cart_token = 'other' WHERE cart_token <> ''",
                "UPDATE seat_holds SET status = 'expired' WHERE status = 'active'",
                "UPDATE seats SET status = 'blocked' WHERE status = 'available'",
                "UPDATE tickets SET sale_id = 'other'",
                "UPDATE checkouts SET status = 'failed'",
                "UPDATE zones SET held = held + 1",
            ):
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(change)
                assert await digest(connection, at) != before, change
                await transaction.rollback()
        finally:
            await connection.close()


async def test_a_hold_past_its_end_counts_as_expired_whether_or_not_it_has_been(
    redis_url: str, database_dsn: str
) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        hold_id = await held(rig.on, "A-1", "A-2")
        await rig.drain()
        await rig.lapse(hold_id)
        await rig.execute("UPDATE seats SET held_until = now() - interval '1 second' WHERE status = 'held'")
        connection = await connect(database_dsn, name="digest", statement_timeout_ms=None)
        try:
            at = await clock(connection)
            before = await digest(connection, at)
            await rig.on.backend.expire_holds(rig.event.organization_id, rig.event.event_id, limit=10)
            await rig.drain()
            assert await rig.value("SELECT status FROM seat_holds WHERE line = 0") == "expired"
            assert await digest(connection, at) == before
        finally:
            await connection.close()


@asynccontextmanager
async def front_end(rig: Rig, name: str, redis_url: str) -> AsyncIterator[HotCache]:
    """A front end as far as it takes to have a hot cache, and to be asked what that knows."""
    cache = HotCache()
    teller = HotTeller(rig.pool, name, lambda: cache)
    follow = follow_event_changes(rig.dsn, lambda _: None, lambda: None, {ASK_CHANNEL: teller.hear})
    epochs = Epochs.fixed(SHARDS, FIRST_EPOCH)
    async with Wire(redis_url) as wire, running(follow, cache.follow(wire, epochs)):

        async def answers() -> bool:
            await rig.execute(query("cast_vote"), uuid5(NAMESPACE_OID, name), FRONT_END, name, True, [], [], [])
            connection = await connect(rig.dsn, name="test")
            try:
                told = await ask_hot_counts(connection, patience_s=0.2)
            finally:
                await connection.close()
            return any(each.front_end == name and each.places for each in told)

        await eventually(answers, "the front end says what its hot cache knows")
        yield cache


async def hot_of(rig: Rig, name: str) -> HotStatus:
    """What status says of a front end, once that has come to where Redis is."""

    async def told() -> HotStatus | None:
        await rig.execute("UPDATE voters SET seen_at = clock_timestamp()")
        (event,) = (await status_of(rig)).events
        found = {each.front_end: each for each in event.hot}.get(name)
        return found if found and found.agreement != "behind" else None

    hot: HotStatus = await eventually(told, "the hot cache has followed the log")
    return hot


async def test_the_hot_caches_of_all_front_ends_are_counted(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig, front_end(rig, "first", redis_url) as _:
        sold = await held(rig.on, "A-1", "A-2")
        await sell(rig.on, sold)
        # The second one comes later, and knows of less.
        async with front_end(rig, "second", redis_url):
            await held(rig.on, "B-1")
            await places_held(rig.on, 3)
            event = rig.event
            await rig.on.backend.block_seats(event, seats=[event.seats["C-1"]])
            await rig.drain()

            first, second = await hot_of(rig, "first"), await hot_of(rig, "second")
            healthy = (await status_of(rig)).healthy

    assert first == HotStatus(front_end="first", held=1, sold=2, blocked=1, agreement="agrees")
    assert second == HotStatus(front_end="second", held=1, sold=0, blocked=1, agreement="agrees")
    assert healthy


async def test_a_hold_that_has_run_out_is_not_counted_as_hot(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig, front_end(rig, "first", redis_url):
        await rig.on.hold("A-1", ttl_ms=1)

        assert (await hot_of(rig, "first")).held == 0


async def test_a_hot_cache_that_calls_too_much_taken_is_told(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig, front_end(rig, "first", redis_url):
        # Given a seat that came free without a word in the log
        await held(rig.on, "A-1")
        await rig.drain()
        assert (await hot_of(rig, "first")).agreement == "agrees"
        counts: Any = await rig.redis.hget(rig.on.keys.key("counts"), "0")
        await rig.redis.hset(rig.on.keys.key("counts"), "0", counts[:8] + bytes(4) + counts[12:])

        hot = await hot_of(rig, "first")
        healthy = (await status_of(rig)).healthy

    assert (hot.held, hot.agreement) == (1, "differs")
    assert not healthy


async def test_a_hot_cache_that_follows_nothing_says_so(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig, front_end(rig, "first", redis_url) as cache:
        cache._following = False

        assert (await hot_of(rig, "first")).agreement == "not following"


async def test_a_front_end_that_does_not_answer_is_left_out(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig, front_end(rig, "first", redis_url):
        await rig.execute(query("cast_vote"), uuid4(), FRONT_END, "silent", True, [], [], [])

        (event,) = (await status_of(rig)).events

    assert [hot.front_end for hot in event.hot] == ["first"]


async def test_more_events_than_a_notification_has_room_for(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig, front_end(rig, "first", redis_url) as cache:
        events = {uuid4() for _ in range(1_000)}
        for event_id in events:
            cache._take(1, event_id.int, [1], (1, 1 << 60))
        connection = await connect(rig.dsn, name="test")
        try:
            (told,) = await ask_hot_counts(connection, patience_s=10)
        finally:
            await connection.close()

    assert set(told.events) == events
    assert {event.held for event in told.events.values()} == {1}


async def test_the_command_prints_both_forms(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        code, text, _ = operate(rig, "status")
        reply = json.loads(operate(rig, "status", "--json")[1])
        async with front_end(rig, "first", redis_url):
            warm = json.loads((await asyncio.to_thread(operate, rig, "status", "--json"))[1])
        digests = {operate(rig, "status", "--digest", "--at", "2099-01-01T00:00:00Z") for _ in range(2)}
        await rig.execute("UPDATE zones SET sold = 1 WHERE zone = 1")
        differing, _, complaint = operate(rig, "status")

    assert str(rig.event.event_id) in text
    assert "agrees" in text
    assert [shard["shard"] for shard in reply["shards"]] == list(range(SHARDS))
    assert reply["events"][0]["agreement"] == "agrees"
    assert "in Redis" in text
    assert warm["events"][0]["hot"] == [
        {"front_end": "first", "held": 0, "sold": 0, "blocked": 0, "agreement": "agrees"}
    ]
    assert len(digests) == 1
    assert (code, differing) == (0, 1)
    assert complaint.startswith("holdfast: ")
