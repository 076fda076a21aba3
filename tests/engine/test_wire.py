"""The wire against a real server, with a proxy between them that does what networks do."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from holdfast.engine.backend import Holder
from holdfast.engine.errors import Fenced, Overloaded, ScriptFault, Unavailable, Unknown
from holdfast.engine.records import unpack_entry
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.engine.wire import NoScript, Wire
from holdfast.loadtest.chaos.proxy import Proxy
from holdfast.lua import scripts
from support.engine import SHARDS, Stage, document, stage
from support.polling import eventually
from support.servers import OwnServer

AT_ONCE_S = 0.1
SEAT = [(0, 0)]


@asynccontextmanager
async def backend_through(url: str, **wire: Any) -> AsyncIterator[tuple[RedisBackend, Wire]]:
    """A second backend on the same server, over a wire of its own."""
    async with Wire(url, **wire) as own_wire:
        yield RedisBackend(own_wire, shards=SHARDS, epoch=FIRST_EPOCH), own_wire


def somebody(hold_id: UUID | None = None) -> Holder:
    return Holder(hold_id=hold_id or uuid4(), user_id=uuid4())


async def holds_in_log(on: Stage) -> list[UUID]:
    entries = [unpack_entry(*entry) for entry in await on.log()]
    return [hold_id for entry in entries if entry.operation == "hold" for hold_id in entry.hold_ids]


async def test_every_caller_gets_its_own_answer(redis_url: str) -> None:
    # Given a network that tears everything into small pieces,
    async with Proxy(redis_url, piece_bytes=7) as proxy, Wire(proxy.url) as wire:
        # when many callers ask at once, again and again,
        async def caller(number: int) -> None:
            for turn in range(5):
                text = b"%d/%d" % (number, turn)
                assert await wire.call("ECHO", text) == text

        await asyncio.gather(*(caller(number) for number in range(500)))

        # then nobody got what another one asked for, and nothing is left over.
        assert wire.waiting == 0


async def test_an_error_goes_to_the_call_that_caused_it(redis_url: str) -> None:
    async with Wire(redis_url) as wire:
        answers = await asyncio.gather(
            wire.call("ECHO", "before"), wire.call("NONSENSE"), wire.call("ECHO", "after"), return_exceptions=True
        )
    assert answers[0] == b"before"
    assert isinstance(answers[1], ScriptFault)
    assert answers[2] == b"after"


async def test_calls_fail_at_once_while_the_server_is_down_and_work_when_it_is_back(own_server: OwnServer) -> None:
    async with Wire(own_server.url, timeout_s=5) as wire:
        # Given a server that goes away,
        own_server.stop()
        await eventually(lambda: not wire.connected, "the wire notices")

        # then calls fail without waiting for it,
        begin = time.monotonic()
        with pytest.raises(Unavailable):
            await wire.call("PING")
        assert time.monotonic() - begin < AT_ONCE_S

        # and succeed once it is back, without anybody's help.
        own_server.start()
        await eventually(lambda: wire.connected, "the wire reconnects")
        assert await wire.call("PING") == b"PONG"


async def test_a_wire_to_nowhere_opens_and_refuses(own_server: OwnServer) -> None:
    own_server.stop()
    async with Wire(own_server.url) as wire:
        with pytest.raises(Unavailable):
            await wire.call("PING")
        assert wire.waiting == 0


async def test_calls_under_way_when_the_connection_breaks_are_unknown_and_not_retried(redis_url: str) -> None:
    async with (
        stage(redis_url, document(rows=5, per_row=10)) as on,
        Proxy(redis_url) as proxy,
        backend_through(proxy.url) as (backend, wire),
    ):
        # Given holds that the server has made, and whose answers are still on their way,
        await backend.read_event(on.event.organization_id, on.event.event_id, want_map=False)
        proxy.stall_answers()
        holders = [somebody() for _ in range(50)]
        pairs = list(on.event.seats.values())
        calls = [
            asyncio.ensure_future(backend.hold_seats(on.event, holder, seats=[pair]))
            for holder, pair in zip(holders, pairs, strict=True)
        ]

        async def all_made() -> bool:
            return len(await holds_in_log(on)) == 50

        await eventually(all_made, "the server has made the holds")

        # when the connection breaks,
        proxy.cut()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        # then every caller is told that the outcome is unknown, and nothing runs twice when the wire is back,
        assert {type(outcome) for outcome in outcomes} == {Unknown}
        proxy.flow()
        await eventually(lambda: wire.connected, "the wire reconnects")
        assert Counter(await holds_in_log(on)) == Counter(holder.hold_id for holder in holders)

        # and a repeat under the same hold id is told what happened the first time.
        again = await backend.hold_seats(on.event, holders[0], seats=[pairs[0]])
        assert (again.status, again.hold_id) == (Status.REPEATED, holders[0].hold_id)


async def test_calls_that_never_reached_the_server_are_unknown_as_well(redis_url: str) -> None:
    async with (
        stage(redis_url) as on,
        Proxy(redis_url) as proxy,
        backend_through(proxy.url) as (backend, wire),
    ):
        await backend.read_event(on.event.organization_id, on.event.event_id, want_map=False)
        proxy.stall()
        call = asyncio.ensure_future(backend.hold_seats(on.event, somebody(), seats=SEAT))
        await eventually(lambda: wire.waiting == 1, "the call is under way")
        proxy.cut()
        with pytest.raises(Unknown):
            await call
        assert await holds_in_log(on) == []


async def test_nobody_waits_for_an_answer_on_a_dead_connection(redis_url: str) -> None:
    async with Proxy(redis_url) as proxy, Wire(proxy.url, timeout_s=5) as wire:
        stopped, answered, failed = asyncio.Event(), Counter[str](), Counter[type]()

        async def caller() -> None:
            while not stopped.is_set():
                try:
                    await wire.call("PING")
                    answered["yes"] += 1
                except Unknown:
                    # Asks again in the very turn in which the connection broke, before the wire has got over it.
                    failed[Unknown] += 1
                except Unavailable:
                    failed[Unavailable] += 1
                    await asyncio.sleep(0)

        # Given callers who never let go, and a connection that breaks under them again and again,
        callers = [asyncio.create_task(caller()) for _ in range(20)]
        for _ in range(5):
            await eventually(lambda: wire.connected and wire.waiting, "calls are under way")
            before = failed[Unknown]
            proxy.cut()
            await eventually(lambda before=before: failed[Unknown] > before, "the callers notice")
        stopped.set()

        # then each of their calls has ended, and none too late.
        async with asyncio.timeout(4):
            await asyncio.gather(*callers)
        assert answered["yes"]
        assert failed[Unavailable]


@pytest.mark.parametrize("fault", ["stall", "half_open"])
async def test_a_silent_server_makes_calls_unknown_and_the_wire_recovers(redis_url: str, fault: str) -> None:
    async with Proxy(redis_url) as proxy, Wire(proxy.url, timeout_s=0.3) as wire:
        # Given a server that has stopped answering,
        getattr(proxy, fault)()

        # when calls have waited for longer than the timeout, then they are unknown,
        calls = [asyncio.ensure_future(wire.call("PING")) for _ in range(10)]
        begin = time.monotonic()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unknown}
        assert 0.3 <= time.monotonic() - begin < 2

        # later ones fail at once,
        begin = time.monotonic()
        with pytest.raises(Unavailable):
            await wire.call("PING")
        assert time.monotonic() - begin < AT_ONCE_S

        # and all is well when the server answers again.
        proxy.flow()
        await eventually(lambda: wire.connected, "the wire reconnects")
        assert await wire.call("ECHO", "back") == b"back"


async def test_a_slow_answer_within_the_timeout_is_an_answer(redis_url: str) -> None:
    async with Proxy(redis_url, delay_s=0.2) as proxy, Wire(proxy.url, timeout_s=2) as wire:
        assert await wire.call("ECHO", "late") == b"late"


async def test_the_queue_is_bounded(redis_url: str) -> None:
    async with Proxy(redis_url) as proxy, Wire(proxy.url, timeout_s=10, max_waiting=10) as wire:
        # Given as many calls under way as the wire takes,
        proxy.stall()
        calls = [asyncio.ensure_future(wire.call("ECHO", f"{number}")) for number in range(10)]
        await eventually(lambda: wire.waiting == 10, "the calls are under way")

        # then the next one is refused,
        with pytest.raises(Overloaded):
            await wire.call("PING")

        # the others are answered, and there is room again.
        proxy.flow()
        assert await asyncio.gather(*calls) == [b"%d" % number for number in range(10)]
        assert await wire.call("PING") == b"PONG"


async def test_callers_that_go_away_do_not_disturb_the_others(redis_url: str) -> None:
    async with Proxy(redis_url) as proxy, Wire(proxy.url, timeout_s=10) as wire:
        proxy.stall_answers()
        calls = [asyncio.ensure_future(wire.call("ECHO", f"{number}")) for number in range(100)]
        await eventually(lambda: wire.waiting == 100, "the calls are under way")
        for call in calls[::2]:
            call.cancel()
        proxy.flow()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers[1::2] == [b"%d" % number for number in range(1, 100, 2)]
        assert {type(answer) for answer in answers[::2]} == {asyncio.CancelledError}
        assert await wire.call("ECHO", "next") == b"next"


async def test_calls_under_way_when_the_wire_is_closed_are_unknown(redis_url: str) -> None:
    async with Proxy(redis_url) as proxy:
        async with Wire(proxy.url, timeout_s=10) as wire:
            proxy.stall_answers()
            call = asyncio.ensure_future(wire.call("PING"))
            await eventually(lambda: wire.waiting == 1, "the call is under way")
        with pytest.raises(Unknown):
            await call
        with pytest.raises(Unavailable):
            await wire.call("PING")


async def test_scripts_the_same_server_has_forgotten_are_loaded_again(redis_url: str) -> None:
    async with stage(redis_url, document(rows=5, per_row=10)) as on:
        await on.redis.script_flush()
        replies = await asyncio.gather(*(on.hold(seat_id) for seat_id in on.event.seats))
        assert {reply.status for reply in replies} == {Status.DONE}
        assert all(await on.redis.script_exists(*(script.sha for script in scripts().values())))


@pytest.mark.parametrize("memory", ["kept", "lost"])
async def test_nothing_is_served_from_a_restarted_server(own_server: OwnServer, memory: str) -> None:
    async with stage(own_server.url) as on, backend_through(own_server.url) as (backend, wire):
        # Given a hold on a server that then restarts, with its data or without,
        assert (await on.hold("A-1")).status == Status.DONE
        before = wire.connections
        own_server.restart()
        if memory == "lost":
            await eventually(lambda: _flushed(own_server.url), "the server answers")
        await eventually(lambda: wire.connections > before and wire.connected, "the wire reconnects")
        await on.redis.connection_pool.disconnect()
        log = await holds_in_log(on)

        # then neither writing nor reading is served,
        with pytest.raises(Fenced):
            await backend.hold_seats(on.event, somebody(), seats=[on.event.seats["A-2"]])
        with pytest.raises(Fenced):
            await backend.read_event(on.event.organization_id, on.event.event_id, want_map=False)

        # nothing has run, and the scripts are not there for others to be served by.
        assert await holds_in_log(on) == log
        assert not any(await on.redis.script_exists(*(script.sha for script in scripts().values())))


async def _flushed(url: str) -> bool:
    async with Redis.from_url(url) as redis:
        return bool(await redis.flushall())


async def test_a_server_that_restarts_while_it_is_identified_gets_no_scripts(own_server: OwnServer) -> None:
    class RestartsOnInfo(Wire):
        """The worst moment to restart: the old incarnation has just said who it is."""

        async def call(self, *words: Any) -> Any:
            answer = await super().call(*words)
            if words[0] == "INFO":
                before = self.connections
                own_server.restart()
                await eventually(lambda: self.connections > before and self.connected, "the wire reconnects")
            return answer

    async with stage(own_server.url) as on, RestartsOnInfo(own_server.url) as wire:
        backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
        await on.redis.script_flush()
        with pytest.raises(Unavailable):
            await backend.hold_seats(on.event, somebody(), seats=SEAT)
        await on.redis.connection_pool.disconnect()
        assert await holds_in_log(on) == []
        assert not any(await on.redis.script_exists(*(script.sha for script in scripts().values())))


async def test_a_server_that_followed_another_and_leads_again_is_fenced(own_server: OwnServer, redis_url: str) -> None:
    other = urlsplit(redis_url)
    async with stage(own_server.url) as on, backend_through(own_server.url) as (backend, wire):
        # Given a server that is made to follow another one, has the other's data, and is made to lead again,
        assert (await backend.hold_seats(on.event, somebody(), seats=SEAT)).status == Status.DONE
        before = wire.connections
        opened = {key: await on.redis.get(key) for key in (on.keys.shard.key("open"), on.keys.shard.key("run"))}
        await on.redis.replicaof(str(other.hostname), str(other.port))

        async def followed() -> bool:
            return bool((await on.redis.info("replication")).get("master_link_status") == "up")

        await eventually(followed, "the server follows")
        await on.redis.replicaof("NO", "ONE")
        # which was a copy of it, not long ago: the epoch is open there, by the same process, and the scripts are left,
        for key, value in opened.items():
            await on.redis.set(key, value)
        assert all(await on.redis.script_exists(*(script.sha for script in scripts().values())))
        await on.redis.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: wire.connections > before and wire.connected, "the wire reconnects")

        # then it is not served from.
        with pytest.raises(Fenced):
            await backend.hold_seats(on.event, somebody(), seats=SEAT)


async def test_a_replica_is_fenced_for_writing(own_server: OwnServer) -> None:
    async with stage(own_server.url) as on:
        await on.redis.replicaof("127.0.0.1", 1)
        with pytest.raises(Fenced):
            await on.hold("A-1")
        await on.redis.replicaof("NO", "ONE")
        assert (await on.hold("A-1")).status == Status.DONE


async def test_a_server_without_memory_refuses_holds_and_still_releases(own_server: OwnServer) -> None:
    async with stage(own_server.url) as on:
        held = await on.hold("A-1")
        await on.redis.config_set("maxmemory", "1")

        with pytest.raises(Overloaded):
            await on.hold("A-2")
        assert held.hold_id is not None
        released = await on.backend.release_holds(on.event, [held.hold_id], user_id=None, reason="user_cancelled")
        assert released.status == Status.DONE

        await on.redis.config_set("maxmemory", "0")
        assert (await on.hold("A-2")).status == Status.DONE


async def test_a_script_that_trips_is_a_fault_and_not_an_outage(redis_url: str) -> None:
    async with stage(redis_url) as on:
        await on.redis.set(on.keys.key("holds"), "not a hash")
        with pytest.raises(ScriptFault, match="WRONGTYPE"):
            await on.hold("A-1")


async def test_an_unknown_script_is_told_from_other_errors(redis_url: str) -> None:
    async with Wire(redis_url) as wire:
        with pytest.raises(NoScript):
            await wire.call("EVALSHA", "0" * 40, 0)


async def test_the_url_gives_user_password_and_database(own_server: OwnServer) -> None:
    address = own_server.url.removeprefix("redis://").removesuffix("/0")
    async with Redis.from_url(own_server.url) as redis:
        await redis.acl_setuser("alice", enabled=True, passwords=["+wonder"], categories=["+@all"], keys=["*"])
        await redis.config_set("requirepass", "secret")
    for credentials in (":secret", "alice:wonder"):
        async with Wire(f"redis://{credentials}@{address}/3") as wire:
            assert await wire.call("SET", "key", credentials) == b"OK"
        async with Redis.from_url(f"redis://:secret@{address}/3") as redis:
            assert await redis.get("key") == credentials.encode()
    async with Redis.from_url(f"redis://:secret@{address}/0") as redis:
        assert await redis.get("key") is None


@pytest.mark.parametrize("credentials", ["", ":wrong@"])
async def test_without_the_password_nothing_is_sent(own_server: OwnServer, credentials: str) -> None:
    address = own_server.url.removeprefix("redis://")
    async with Redis.from_url(own_server.url) as redis:
        await redis.config_set("requirepass", "secret")
    async with Wire(f"redis://{credentials}{address}") as wire:
        assert not wire.connected
        with pytest.raises(Unavailable):
            await wire.call("PING")
