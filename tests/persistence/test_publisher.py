import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from aiohttp import web
from redis.asyncio import Redis

from holdfast.engine.layout import CompiledEvent, compile_event
from holdfast.engine.settings import Settings
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.occupancy import OccupancyCache, channel_of
from holdfast.persistence.outbox import Pace
from holdfast.ports import available_port
from support.database import execute
from support.engine import document
from support.outbox import (
    FAST,
    SECRET,
    Call,
    Receiver,
    accept,
    add_row,
    add_rows,
    connected,
    publishing,
    receiving,
    settled,
    verified,
)
from support.polling import eventually

ORGANIZATION = uuid4()
PUBLISH = """
import asyncio, os
from holdfast.engine.settings import Settings
from holdfast.persistence.publisher import publish
asyncio.run(publish(Settings.read(os.environ)))
"""
WAITING = "SELECT count(*) FROM outbox WHERE published_at IS NULL"
DELIVERED = "SELECT bool_and(published_at IS NOT NULL) FROM outbox WHERE event_id = ANY ($1)"
TERMINATE = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
WHERE application_name IN ('holdfast announcer', 'holdfast deliverer') AND datname = current_database()
"""
FAILED = "SELECT max(attempts) >= $1 FROM outbox"


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Any]:
    async with connected(database_dsn) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@pytest.fixture
def quiet(database_dsn: str, redis_url: str) -> Settings:
    """Settings without a webhook."""
    return Settings(postgres_dsn=database_dsn, redis_url=redis_url)


@pytest.fixture
def settings(quiet: Settings, receiver: Receiver) -> Settings:
    return with_webhook(quiet, receiver.url)


def with_webhook(settings: Settings, url: str) -> Settings:
    return msgspec.structs.replace(settings, webhook_url=url, webhook_secret=SECRET)


@asynccontextmanager
async def subscribed(url: str, *events: tuple[UUID, UUID]) -> AsyncIterator[Any]:
    async with Redis.from_url(url) as redis, redis.pubsub(ignore_subscribe_messages=True) as subscription:
        await subscription.subscribe(*(channel_of(*event) for event in events))
        # The answers to the subscription, so that what is published from now on arrives.
        for _ in events:
            await subscription.get_message(timeout=10)
        yield subscription


async def next_message(subscription: Any, within_s: float = 20.0) -> Any:
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while loop.time() < until:
        message = await subscription.get_message(ignore_subscribe_messages=True, timeout=until - loop.time())
        if message is not None:
            return json.loads(message["data"])
    return None


class TestWebhook:
    async def test_rows_are_posted_signed_and_in_order(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        event_id = uuid4()
        await add_row(connection, ORGANIZATION, event_id, seat_ids=["A-1"], held_until="2026-03-01T10:10:00Z")
        await add_row(
            connection, ORGANIZATION, event_id, kind="SeatReleased", seat_ids=["A-2"], reason="user_cancelled"
        )
        await add_row(connection, ORGANIZATION, event_id, kind="SeatSold", seat_ids=["A-3"], sale_id="s-1")

        async with publishing(settings):
            await settled(connection)

        assert [call.content["type"] for call in receiver.calls] == ["SeatReserved", "SeatReleased", "SeatSold"]
        assert [call.seat for call in receiver.calls] == ["A-1", "A-2", "A-3"]
        assert all(verified(call) for call in receiver.calls)
        assert len({call.id for call in receiver.calls}) == 3
        first, second, _ = (call.content for call in receiver.calls)
        assert set(first) == {"type", "timestamp", "data"}
        assert first["timestamp"] == "2026-03-01T10:00:00.123000Z"
        assert first["data"]["organization_id"] == str(ORGANIZATION)
        assert second["data"]["reason"] == "user_cancelled"

    async def test_a_commit_wakes_the_publisher(self, connection: Any, settings: Settings, receiver: Receiver) -> None:
        async def woken() -> bool:
            await connection.execute("SELECT pg_notify('holdfast_outbox', '')")
            return bool(receiver.calls)

        # Given a publisher that looks by itself only long after this test has timed out
        async with publishing(settings, msgspec.structs.replace(FAST, poll_s=600.0)):
            await add_row(connection, ORGANIZATION, uuid4(), seat_ids=["first"])
            # It may have looked before or after that row; either way it is listening once this one arrives.
            await eventually(woken, "the first row is delivered")

            # When a commit comes with a notification
            async with connection.transaction():
                await add_row(connection, ORGANIZATION, uuid4(), seat_ids=["second"])
                await connection.execute("SELECT pg_notify('holdfast_outbox', '')")

            # Then it is delivered
            await receiver.until(lambda: receiver.calls[-1].seat == "second")

    async def test_failures_are_retried_in_order_under_the_same_id(
        self, connection: Any, settings: Settings, receiver: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        # Given a receiver that fails the third row of five in every way there is, and then takes it
        event_id = uuid4()
        seats = await add_rows(connection, ORGANIZATION, event_id, 5)
        failures: list[int | None] = [500, None, 302, 410, 404]

        async def answer(call: Call) -> web.Response:
            if call.seat == seats[2] and failures:
                status = failures.pop(0)
                if status is None:
                    await asyncio.sleep(60)
                return web.Response(status=status or 500)
            return web.Response()

        receiver.answer = answer
        with caplog.at_level(logging.WARNING):
            async with publishing(settings, msgspec.structs.replace(FAST, timeout_s=0.2)):
                await settled(connection)

        # Then nothing overtakes it, and the receiver can tell that it is the same
        assert [call.seat for call in receiver.calls] == [*seats[:2], *[seats[2]] * 6, *seats[3:]]
        retried = [call for call in receiver.calls if call.seat == seats[2]]
        assert len({call.id for call in retried}) == 1
        assert len({call.body for call in retried}) == 1
        assert all(verified(call) for call in retried)
        assert await connection.fetchval("SELECT max(attempts) FROM outbox") == 6
        warnings = [record.getMessage() for record in caplog.records if "has not taken" in record.getMessage()]
        assert len(warnings) == 5
        assert "attempt 2" in warnings[1]
        assert "did not answer within 0.2 s" in warnings[1]

    async def test_the_wait_grows_with_every_failure(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        # Given a row that has failed often, and whose time has come
        await add_row(connection, ORGANIZATION, uuid4())
        await connection.execute("UPDATE outbox SET attempts = 4, retry_at = now() - interval '1 second'")

        async def refuse(call: Call) -> web.Response:
            return web.Response(status=503 if call.seat == "A-1" else 200)

        receiver.answer = refuse
        # When it fails again, while others are delivered
        async with publishing(settings, Pace(poll_s=0.05, retry_first_s=100.0, retry_max_s=10_000.0)):
            await receiver.until(lambda: len(receiver.calls) == 1)
            await eventually(lambda: connection.fetchval(FAILED, 5), "the failure is counted")
            other = uuid4()
            await add_rows(connection, ORGANIZATION, other, 20)
            await eventually(lambda: connection.fetchval(DELIVERED, [other]), "the others are delivered")

        # Then it waits for half of 1600 seconds at least, and is not forgotten
        waits_s = await connection.fetchval(
            "SELECT extract(epoch FROM retry_at - now()) FROM outbox WHERE attempts = 5"
        )
        assert 700 < waits_s <= 1600
        assert [call.seat for call in receiver.calls].count("A-1") == 1
        assert await connection.fetchval(WAITING) == 1

    async def test_a_receiver_that_cannot_be_reached_gets_everything_when_it_can(
        self, connection: Any, quiet: Settings
    ) -> None:
        event_id = uuid4()
        seats = await add_rows(connection, ORGANIZATION, event_id, 3)
        port = available_port("127.0.0.1")
        async with publishing(with_webhook(quiet, f"http://127.0.0.1:{port}/hook")):
            await eventually(lambda: connection.fetchval(FAILED, 2), "two attempts have failed")

        async with receiving() as receiver, publishing(with_webhook(quiet, receiver.url)):
            await settled(connection)

        assert [call.seat for call in receiver.calls] == seats

    async def test_one_event_that_fails_holds_back_no_other(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        # Given more events that fail, or hang, than are worked on at once
        stuck = [uuid4() for _ in range(8)]
        for event_id in stuck:
            await add_rows(connection, ORGANIZATION, event_id, 2)

        async def answer(call: Call) -> web.Response:
            return web.Response(status=500 if call.event_id in stuck else 200)

        receiver.answer = answer
        async with publishing(settings, msgspec.structs.replace(FAST, events_at_once=4, retry_max_s=0.1)):
            await receiver.until(lambda: len({call.event_id for call in receiver.calls}) == len(stuck))
            # When rows of others come
            others = [uuid4() for _ in range(3)]
            expected = {event_id: await add_rows(connection, ORGANIZATION, event_id, 10) for event_id in others}

            # Then these are delivered, and of each that fails only the first row is ever tried
            await eventually(lambda: connection.fetchval(DELIVERED, others), "the others are delivered")
            for event_id, seats in expected.items():
                assert [call.seat for call in receiver.calls if call.event_id == event_id] == seats
            assert {call.seat for call in receiver.calls if call.event_id in stuck} == {f"{each}/0" for each in stuck}

            # And when the receiver recovers, the rest follows
            receiver.answer = accept
            await settled(connection)
        for event_id in stuck:
            assert receiver.first_seats(event_id) == [f"{event_id}/0", f"{event_id}/1"]

    async def test_a_slow_event_does_not_delay_another(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        slow, other = uuid4(), uuid4()
        release = asyncio.Event()

        async def answer(call: Call) -> web.Response:
            if call.event_id == slow:
                await release.wait()
            return web.Response()

        receiver.answer = answer
        await add_rows(connection, ORGANIZATION, slow, 1)
        async with publishing(settings):
            await receiver.until(lambda: len(receiver.calls) == 1)
            seats = await add_rows(connection, ORGANIZATION, other, 5)
            await receiver.until(lambda: receiver.first_seats(other) == seats)
            release.set()
            await settled(connection)

    async def test_a_publisher_told_to_stop_leaves_nothing_to_be_repeated(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        event_id = uuid4()
        seats = await add_rows(connection, ORGANIZATION, event_id, 6)

        async def answer(call: Call) -> web.Response:
            if call.seat == seats[3]:
                await asyncio.sleep(60)
            return web.Response()

        receiver.answer = answer
        async with publishing(settings):
            await receiver.until(lambda: len(receiver.calls) == 4)
        assert await connection.fetchval(WAITING) == 3

        receiver.answer = accept
        async with publishing(settings):
            await settled(connection)
        assert [call.seat for call in receiver.calls] == [*seats[:4], *seats[3:]]

    async def test_a_publisher_stops_whenever_it_is_told_to(self, connection: Any, settings: Settings) -> None:
        # A cancellation that a library swallows, at whatever it happens to do then, would keep it going.
        for moment in range(30):
            await add_rows(connection, ORGANIZATION, uuid4(), 3)
            async with publishing(settings):
                await asyncio.sleep(moment * 0.003)

        async with publishing(settings):
            await settled(connection)

    async def test_a_publisher_stops_also_when_postgres_is_gone(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        # Given a publisher that does not know yet that it has lost its connection with a delivery to note
        seats = await add_rows(connection, ORGANIZATION, uuid4(), 2)

        async def answer(call: Call) -> web.Response:
            if call.seat == seats[1]:
                await asyncio.sleep(60)
            return web.Response()

        receiver.answer = answer
        async with publishing(settings, msgspec.structs.replace(FAST, poll_s=600.0)):
            await receiver.until(lambda: len(receiver.calls) == 2)
            await connection.execute(TERMINATE)
            # Then it ends when told to, which leaving this block does

        assert await connection.fetchval(WAITING) == 2

    async def test_postgres_gone_for_a_moment_loses_nothing(
        self, connection: Any, settings: Settings, receiver: Receiver, database_dsn: str
    ) -> None:
        event_id = uuid4()
        seats = await add_rows(connection, ORGANIZATION, event_id, 40)
        cut = asyncio.Event()

        async def answer(call: Call) -> web.Response:
            if call.seat == seats[20] and not cut.is_set():
                cut.set()
                # When every connection of the publisher breaks while a delivery is under way
                await execute(database_dsn, TERMINATE)
            return web.Response()

        receiver.answer = answer
        async with publishing(settings):
            await settled(connection)

        assert cut.is_set()
        assert receiver.first_seats(event_id) == seats


class TestSeveralPublishers:
    async def test_each_row_is_delivered_once_and_in_order(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        # Given three publishers that take turns often, because each takes only a few rows at a time
        pace = msgspec.structs.replace(FAST, deliveries=5, poll_s=0.02)
        events = [uuid4() for _ in range(5)]
        expected: dict[UUID, list[str]] = {}
        async with publishing(settings, pace), publishing(settings, pace), publishing(settings, pace):
            for event_id in events:
                expected[event_id] = await add_rows(connection, ORGANIZATION, event_id, 40)
            await settled(connection)

        for event_id, seats in expected.items():
            assert [call.seat for call in receiver.calls if call.event_id == event_id] == seats

    async def test_one_that_is_killed_is_replaced_and_the_order_holds(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        # Given a publisher in a process of its own, which is in the middle of an event
        event_id = uuid4()
        seats = await add_rows(connection, ORGANIZATION, event_id, 30)
        release = asyncio.Event()

        async def answer(call: Call) -> web.Response:
            if call.seat == seats[10] and not release.is_set():
                await release.wait()
            return web.Response()

        receiver.answer = answer
        environment = {**os.environ, **settings.environment()}
        process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", PUBLISH, env=environment)
        try:
            await receiver.until(lambda: len(receiver.calls) == 11)
            # And a second that cannot get at the event
            async with publishing(settings):
                other = uuid4()
                await add_rows(connection, ORGANIZATION, other, 1)
                await receiver.until(lambda: receiver.calls[-1].event_id == other)
                assert len([call for call in receiver.calls if call.event_id == event_id]) == 11

                # When the first is killed
                process.send_signal(signal.SIGKILL)
                await process.wait()
                release.set()
                await settled(connection)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

        # Then the second goes on, and what it repeats has the ids of before
        assert receiver.first_seats(event_id) == seats
        assert len({call.id for call in receiver.calls if call.event_id == event_id}) == len(seats)

    async def test_announcements_are_not_doubled(self, connection: Any, quiet: Settings) -> None:
        event_id = uuid4()
        async with (
            subscribed(quiet.redis_url, (ORGANIZATION, event_id)) as subscription,
            publishing(quiet),
            publishing(quiet),
        ):
            seats = await add_rows(connection, ORGANIZATION, event_id, 50)
            await settled(connection)
            messages = [await next_message(subscription) for _ in seats]

            assert [message["seat_ids"] for message in messages] == [[seat] for seat in seats]
            assert await next_message(subscription, within_s=0.2) is None


async def publications(redis: Redis) -> int:
    """How many messages the server was given for its subscribers so far."""
    stats = await redis.info("commandstats")
    return int(stats.get("cmdstat_publish", {}).get("calls", 0))


class TestPubSub:
    async def test_a_change_is_announced_with_the_figures_after_it(self, connection: Any, quiet: Settings) -> None:
        event = await saved(connection)
        await connection.execute("UPDATE zones SET held = 2 WHERE event_id = $1 AND zone = 0", event.event_id)
        hold_id = str(uuid4())
        async with subscribed(quiet.redis_url, (event.organization_id, event.event_id)) as subscription:
            row = await add_row(
                connection, event.organization_id, event.event_id, hold_id=hold_id, seat_ids=["A-1", "A-2"]
            )
            async with publishing(quiet):
                message = await next_message(subscription)

        assert message == {
            "id": row,
            "event": "seat_held",
            "event_id": str(event.event_id),
            "hold_id": hold_id,
            "seat_ids": ["A-1", "A-2"],
            "quantities": [],
            "total_capacity": 80,
            "total_available": 78,
            "total_held": 2,
            "total_sold": 0,
            "total_blocked": 0,
            "percent_available": 97.5,
            "percent_held": 2.5,
            "percent_sold": 0.0,
            "percent_blocked": 0.0,
            "timestamp": "2026-03-01T10:00:00.123+00:00",
        }

    async def test_what_nobody_listens_for_is_not_sent(self, connection: Any, quiet: Settings) -> None:
        heard, unheard = uuid4(), uuid4()
        async with Redis.from_url(quiet.redis_url) as redis, subscribed(quiet.redis_url, (ORGANIZATION, heard)) as told:
            before = await publications(redis)
            await add_rows(connection, ORGANIZATION, unheard, 5)
            seats = await add_rows(connection, ORGANIZATION, heard, 2)
            async with publishing(quiet):
                await settled(connection)
                messages = [await next_message(told) for _ in seats]

            assert [message["seat_ids"] for message in messages] == [[seat] for seat in seats]
            assert await publications(redis) == before + len(seats)

    async def test_who_listens_by_a_pattern_hears_of_everything(self, connection: Any, quiet: Settings) -> None:
        async with Redis.from_url(quiet.redis_url) as redis, redis.pubsub() as told:
            await told.psubscribe(f"occupancy:{ORGANIZATION}:*")
            assert (await told.get_message(timeout=5.0))["type"] == "psubscribe"
            await add_rows(connection, ORGANIZATION, uuid4(), 1)
            await add_rows(connection, ORGANIZATION, uuid4(), 1)
            async with publishing(quiet):
                types = [(await told.get_message(timeout=5.0))["type"] for _ in range(2)]

        assert types == ["pmessage", "pmessage"]

    async def test_releases_and_sales_are_named_and_private_facts_are_not(
        self, connection: Any, quiet: Settings
    ) -> None:
        event_id = uuid4()
        private: dict[str, Any] = {"user_id": str(uuid4()), "sale_id": "sale-1", "ticket_ids": [str(uuid4())]}
        places = [{"zone": 1, "quantity": 3}]
        async with subscribed(quiet.redis_url, (ORGANIZATION, event_id)) as subscription, publishing(quiet):
            await add_row(
                connection,
                ORGANIZATION,
                event_id,
                kind="SeatReleased",
                reason="ttl_expired",
                quantities=places,
                **private,
            )
            await add_row(connection, ORGANIZATION, event_id, kind="SeatSold", **private)
            released, sold = await next_message(subscription), await next_message(subscription)

        assert (released["event"], released["reason"], released["quantities"]) == (
            "seat_released",
            "ttl_expired",
            places,
        )
        assert sold["event"] == "seat_sold"
        assert "reason" not in sold
        for message in (released, sold):
            assert private.keys().isdisjoint(message)
            assert private["user_id"] not in json.dumps(message)

    async def test_nothing_is_announced_before_its_commit(
        self, connection: Any, quiet: Settings, database_dsn: str
    ) -> None:
        event_id = uuid4()
        async with (
            subscribed(quiet.redis_url, (ORGANIZATION, event_id)) as subscription,
            connected(database_dsn) as writer,
            publishing(quiet),
        ):
            # Given a row in an open transaction, and a later one that is committed
            transaction = writer.transaction()
            await transaction.start()
            await add_row(writer, ORGANIZATION, event_id, seat_ids=["uncommitted"])
            await add_row(connection, ORGANIZATION, event_id, seat_ids=["committed"])

            # Then only that is announced, until the other is committed as well
            assert (await next_message(subscription))["seat_ids"] == ["committed"]
            await settled(connection)
            await transaction.commit()
            assert (await next_message(subscription))["seat_ids"] == ["uncommitted"]

    async def test_what_is_rolled_back_is_never_announced(
        self, connection: Any, quiet: Settings, database_dsn: str
    ) -> None:
        event_id = uuid4()
        async with (
            subscribed(quiet.redis_url, (ORGANIZATION, event_id)) as subscription,
            connected(database_dsn) as writer,
            publishing(quiet),
        ):
            transaction = writer.transaction()
            await transaction.start()
            await add_row(writer, ORGANIZATION, event_id, seat_ids=["undone"])
            await transaction.rollback()
            await add_row(connection, ORGANIZATION, event_id, seat_ids=["done"])

            assert (await next_message(subscription))["seat_ids"] == ["done"]

    async def test_without_a_webhook_announcing_is_all(self, connection: Any, quiet: Settings) -> None:
        await add_rows(connection, ORGANIZATION, uuid4(), 3)

        async with publishing(quiet):
            await settled(connection)

        assert await connection.fetchval("SELECT count(*) FROM outbox WHERE attempts = 0 AND retry_at IS NULL") == 3

    async def test_a_row_that_nobody_can_read_holds_nothing_up(
        self, connection: Any, settings: Settings, receiver: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        event_id = uuid4()
        async with subscribed(settings.redis_url, (ORGANIZATION, event_id)) as subscription, publishing(settings):
            await add_row(connection, ORGANIZATION, event_id, hold_id=7, seat_ids=["odd"])
            await add_row(connection, ORGANIZATION, event_id, seat_ids=["next"])
            await settled(connection)
            assert (await next_message(subscription))["seat_ids"] == ["next"]

        assert [call.seat for call in receiver.calls] == ["odd", "next"]
        assert "cannot be announced" in caplog.text

    async def test_a_cache_learns_the_new_figures(self, connection: Any, quiet: Settings) -> None:
        event = await saved(connection)
        cache = OccupancyCache()
        scope = (event.organization_id, event.event_id)
        assert (await cache.get(connection, *scope)).total.held == 0
        await connection.execute("UPDATE zones SET held = 1 WHERE event_id = $1 AND zone = 0", event.event_id)
        await add_row(connection, *scope)

        async with publishing(quiet, cache=cache):
            await settled(connection)

        assert (await cache.get(connection, *scope)).total.held == 1


class TestIndependence:
    async def test_a_webhook_that_fails_does_not_delay_announcements(
        self, connection: Any, settings: Settings, receiver: Receiver
    ) -> None:
        event_id = uuid4()

        async def refuse(_: Call) -> web.Response:
            return web.Response(status=500)

        receiver.answer = refuse
        async with subscribed(settings.redis_url, (ORGANIZATION, event_id)) as subscription, publishing(settings):
            first = await add_rows(connection, ORGANIZATION, event_id, 3)
            assert [(await next_message(subscription))["seat_ids"] for _ in first] == [[seat] for seat in first]
            await add_row(connection, ORGANIZATION, event_id, seat_ids=["later"])
            assert (await next_message(subscription))["seat_ids"] == ["later"]
            assert await connection.fetchval(WAITING) == 4

    async def test_a_redis_that_is_gone_does_not_delay_webhooks(
        self, connection: Any, quiet: Settings, receiver: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        nowhere = f"redis://127.0.0.1:{available_port('127.0.0.1')}/0"
        settings = with_webhook(msgspec.structs.replace(quiet, redis_url=nowhere), receiver.url)
        event_id = uuid4()
        with caplog.at_level(logging.WARNING):
            async with publishing(settings):
                first = await add_rows(connection, ORGANIZATION, event_id, 5)
                await settled(connection)
                await add_row(connection, ORGANIZATION, event_id, seat_ids=["later"])
                await settled(connection)

        assert [call.seat for call in receiver.calls] == [*first, "later"]
        # One line tells of an outage, however many announcements it swallows.
        assert caplog.text.count("Redis takes no announcements") == 1

    async def test_announcing_goes_on_when_redis_is_back(self, connection: Any, quiet: Settings) -> None:
        event_id = uuid4()
        async with (
            Redis.from_url(quiet.redis_url) as redis,
            subscribed(quiet.redis_url, (ORGANIZATION, event_id)) as subscription,
            publishing(quiet),
        ):
            await add_row(connection, ORGANIZATION, event_id, seat_ids=["before"])
            assert (await next_message(subscription))["seat_ids"] == ["before"]

            # When the connection breaks, what is announced meanwhile may be lost, and rows are done nevertheless
            await redis.client_kill_filter(_type="normal", skipme=True)
            await add_row(connection, ORGANIZATION, event_id, seat_ids=["meanwhile"])
            await settled(connection)

            await add_row(connection, ORGANIZATION, event_id, seat_ids=["after"])
            while (await next_message(subscription))["seat_ids"] != ["after"]:
                pass


async def saved(connection: Any) -> CompiledEvent:
    """An event with 30 seats and a floor of 50 in the database."""
    event = compile_event(uuid4(), document())
    await save_event(connection, event, 4)
    return event
