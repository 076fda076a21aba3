"""Guards proven by removing them, on real servers: without one the checker of the chaos runs finds a broken promise.

Each course of events is played twice. With every guard in place nothing that buyers were told is untrue; without the
one in question something is. docs/protocol.md explains the guards, and the model in tests/model/test_protocol.py has
the same ablations over thousands of histories.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from holdfast import lua
from holdfast.engine import redis_backend
from holdfast.engine.acks import Ack
from holdfast.engine.background import beside
from holdfast.engine.durable import DurableBackend
from holdfast.engine.epochs import Mode
from holdfast.engine.keys import EventKeys, ShardKeys
from holdfast.engine.redis_backend import RedisBackend
from holdfast.loadtest.chaos.checker import Rule
from holdfast.loadtest.chaos.proxy import Proxy
from holdfast.persistence import sql
from holdfast.persistence.modes import set_mode
from holdfast.persistence.persister import LostRace, Persister
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.transitions import Cause, to_db
from support.engine import SHARDS
from support.fallback import Fallback, replica_of
from support.polling import eventually
from support.witness import Witness

CAUSE = Cause("a test", "a test")
ALICE, BOB = uuid4(), uuid4()


class Workshop:
    """Where guards are taken out of the code that is under test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shards: Fallback, directory: Path) -> None:
        self.monkeypatch = monkeypatch
        self.shards = shards
        self._directory = directory

    def edit_query(self, name: str, guard: str, instead: str = "") -> None:
        """Take a guard out of a statement."""
        folder = self._copy(sql.QUERIES, "queries")
        _replace(folder / f"{name}.sql", guard, instead)
        self.monkeypatch.setattr(sql, "QUERIES", folder)
        sql.query.cache_clear()

    async def edit_function(self, name: str, guard: str, instead: str = "") -> None:
        """Take a guard out of a function of the database."""
        text = await self.shards.value("SELECT pg_get_functiondef($1::regproc)", name)
        await self.shards.execute(_without(text, name, guard, instead))

    def edit_scripts(self, include: str, guard: str, instead: str) -> None:
        """Take a guard out of every script that includes a piece."""
        folder = self._copy(lua.SCRIPTS, "lua")
        _replace(folder / "include" / f"{include}.lua", guard, instead)
        edited = lua.load_scripts(folder)
        self.monkeypatch.setattr(redis_backend, "scripts", lambda: edited)

    def _copy(self, source: Path, name: str) -> Path:
        folder = self._directory / name
        if not folder.exists():
            shutil.copytree(source, folder)
        return folder


def _replace(path: Path, guard: str, instead: str) -> None:
    path.write_text(_without(path.read_text(), path.name, guard, instead))


def _without(text: str, name: str, guard: str, instead: str) -> str:
    assert text.count(guard) == 1, f"{name} does not have this guard, once: {guard}"
    return text.replace(guard, instead)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch, shards: Fallback, tmp_path: Path) -> Iterator[Workshop]:
    with monkeypatch.context() as patches:
        yield Workshop(patches, shards, tmp_path)
    sql.query.cache_clear()


# Courses of events.


async def redis_lets_the_next_one_in_too_early(shards: Fallback, buyers: Witness) -> None:
    """Redis's clock is ahead: it ends a hold that lives by Postgres's clock, and gives the seat to the next buyer."""
    async with shards.front(votes=False) as front, beside(shards.persister().run()):
        hold = await buyers.hold(front.service, "A-1", ALICE)
        keys = EventKeys(await shards.keys(), shards.event.organization_id, shards.event.event_id)
        for each in await shards.servers.redis.zrange(keys.key("expiry"), 0, -1):
            await shards.servers.redis.zadd(keys.key("expiry"), {each: 1})
        assert hold
        await buyers.hold(front.service, "A-1", BOB)


async def redis_is_emptied_before_the_commit(shards: Fallback, buyers: Witness) -> None:
    """A hold is decided in Redis, and Redis loses it before a keeper has read it."""
    redis, log = shards.servers.redis, (await shards.keys()).key("log")
    entries = await redis.xlen(log)
    async with shards.front(votes=False) as front:
        asking = asyncio.create_task(buyers.hold(front.service, "A-1", ALICE))

        async def decided() -> bool:
            return bool(await redis.xlen(log) > entries)

        await eventually(decided, "Redis has decided")
        await redis.flushall()
        await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard], anew=True)
        async with beside(shards.persister().run()):
            assert await asking


async def a_front_end_misses_the_way_back(shards: Fallback, buyers: Witness) -> None:
    """Redis serves again, and a front end that has not heard of it still holds a seat in Postgres."""
    late = RowLockBackend(shards.servers.pool, shards=SHARDS)
    async with shards.front(votes=False) as front, beside(shards.persister().run()):
        if hold := await buyers.hold(late, "A-1", ALICE):
            await buyers.extend(front.service, hold, ALICE)


async def a_keeper_sleeps_through_a_change(shards: Fallback, buyers: Witness) -> None:
    """A keeper has read a release when Postgres takes over, where the buyer is told that the hold is still theirs."""
    awake, has_read = asyncio.Event(), asyncio.Event()

    class Sleeper(Persister):
        async def _commit(self, *arguments: Any, **options: Any) -> Any:
            has_read.set()
            await awake.wait()
            return await super()._commit(*arguments, **options)

    servers, before = shards.servers, await shards.state()
    sleeper = Sleeper(servers.redis, servers.pool, shards=SHARDS, compensation=None)
    async with shards.front(votes=False) as front:
        async with beside(shards.persister().run()):
            hold = await buyers.hold(front.service, "A-1", ALICE)
        # Nobody is told of the release, which is not committed when its epoch ends.
        release = asyncio.create_task(buyers.release(front.service, hold, ALICE))
        work = asyncio.create_task(sleeper.step())
        await has_read.wait()
        await to_db(servers.pool, shards.shard, before, CAUSE)
        await release
        assert await buyers.hold(front.service, "A-1", ALICE) == hold
        awake.set()
        with suppress(LostRace):
            await work


async def a_stale_server_takes_over(shards: Fallback, buyers: Witness) -> None:
    """A replica that misses the last hold takes the primary's place, and a front end is led to it."""
    async with replica_of(shards.redis_url) as (replica, stale), Proxy(shards.redis_url) as proxy:
        # A server whose first replica comes gets a new name, so the epoch that counts is opened after that.
        await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard], anew=True)
        open_key = (await shards.keys()).key("open")

        async def has_followed() -> bool:
            return bool(await stale.exists(open_key))

        await eventually(has_followed, "the replica has the new epoch")
        await stale.replicaof("NO", "ONE")
        async with shards.front(proxy.url, votes=False) as front, beside(shards.persister().run()):
            assert await buyers.hold(front.service, "A-1", ALICE)
            proxy.redirect(replica.url)
            proxy.cut()
            await eventually(lambda: front.wire.connections > 1, "the front end is led to the replica")
            await buyers.hold(front.service, "A-1", BOB)


async def redis_is_emptied_and_serves_on(shards: Fallback, buyers: Witness) -> None:
    """Redis is emptied, scripts and process being the same, and the owner of a hold asks for more time."""
    async with shards.front(votes=False) as front:
        async with beside(shards.persister().run()):
            hold = await buyers.hold(front.service, "A-1", ALICE)
        await shards.servers.redis.flushall()
        await buyers.extend(front.service, hold, ALICE)


# What is removed.


async def drop_the_unique_index(workshop: Workshop) -> None:
    """And what foresees it, which refuses the same before the index has to."""
    await workshop.shards.execute("DROP INDEX seat_held_by_another_user")
    await remove_what_foresees_the_index(workshop)


async def remove_what_foresees_the_index(workshop: Workshop) -> None:
    workshop.edit_query("apply_holds", "WHERE s.status <> 'available'", "WHERE false")
    await workshop.edit_function("place_holds", " AND s.status = 'available'")


async def acknowledge_when_redis_has_it(workshop: Workshop) -> None:
    async def at_once(_: DurableBackend, reply: Any, __: Ack) -> Any:
        return reply

    workshop.monkeypatch.setattr(DurableBackend, "_committed", at_once)


async def hold_in_postgres_in_any_mode(workshop: Workshop) -> None:
    workshop.edit_query("lock_own_mark", " AND mode = 'db'")
    workshop.edit_query("look_at_event", "(SELECT mode FROM control WHERE shard = $1)", "'db'")


async def persist_in_any_epoch(workshop: Workshop) -> None:
    await workshop.edit_function(
        "advance_marks", "JOIN control c ON c.shard = t.shard AND c.epoch = t.epoch AND c.mode = 'redis'\n"
    )


async def serve_without_the_open_key(workshop: Workshop) -> None:
    workshop.edit_scripts("enter_shard", "= shard[1],", "= shard[1] or KEY_OPEN:match(':e(%d+):'),")


async def load_scripts_on_any_server(workshop: Workshop) -> None:
    """Nobody asks which server it is, neither when scripts are missing nor on a new connection."""

    async def take_it_for_granted(backend: Any, shard: ShardKeys) -> None:
        backend._identified[shard.shard, shard.epoch] = backend._wire.connections

    workshop.monkeypatch.setattr(RedisBackend, "_identify", take_it_for_granted)


async def serve_on_any_server(workshop: Workshop) -> None:
    await serve_without_the_open_key(workshop)
    await load_scripts_on_any_server(workshop)


async def trust_the_clock_of_redis(workshop: Workshop) -> None:
    workshop.edit_query("apply_ends", "(g.status <> 'expired' OR h.held_until <= clock_timestamp())", "true")


class Ablation(NamedTuple):
    """What is removed, the course of events that then goes wrong, and the promises that are broken."""

    remove: Callable[[Workshop], Awaitable[None]]
    course: Callable[[Fallback, Witness], Awaitable[None]]
    broken: set[Rule]


ABLATIONS = {
    "unique index dropped": Ablation(drop_the_unique_index, redis_lets_the_next_one_in_too_early, {Rule.OVERLAP}),
    "ack=redis called durable": Ablation(
        acknowledge_when_redis_has_it, redis_is_emptied_before_the_commit, {Rule.LOST_HOLD}
    ),
    "epoch check removed: holds in Postgres": Ablation(
        hold_in_postgres_in_any_mode, a_front_end_misses_the_way_back, {Rule.LOST_HOLD}
    ),
    "epoch check removed: persister": Ablation(
        persist_in_any_epoch, a_keeper_sleeps_through_a_change, {Rule.LOST_HOLD}
    ),
    "script-cache fence removed together with the open key": Ablation(
        serve_on_any_server, a_stale_server_takes_over, {Rule.OVERLAP, Rule.LOST_HOLD}
    ),
    "open key removed": Ablation(serve_without_the_open_key, redis_is_emptied_and_serves_on, {Rule.LOST_HOLD}),
    "Redis's clock trusted for expiry": Ablation(
        trust_the_clock_of_redis, redis_lets_the_next_one_in_too_early, {Rule.OVERLAP, Rule.LOST_HOLD}
    ),
}


@pytest.mark.parametrize("name", ABLATIONS)
async def test_without_its_guard_a_course_of_events_breaks_a_promise(name: str, workshop: Workshop) -> None:
    ablation, buyers = ABLATIONS[name], Witness(workshop.shards)
    await ablation.remove(workshop)
    await ablation.course(workshop.shards, buyers)
    assert await buyers.violations() == ablation.broken, "\n".join(map(str, buyers.calls))


@pytest.mark.parametrize("course", dict.fromkeys(ablation.course for ablation in ABLATIONS.values()))
async def test_with_all_guards_the_same_course_is_harmless(
    course: Callable[[Fallback, Witness], Awaitable[None]], shards: Fallback
) -> None:
    buyers = Witness(shards)
    await course(shards, buyers)
    assert await buyers.violations() == set(), "\n".join(map(str, buyers.calls))


async def test_the_unique_index_alone_keeps_the_second_hold_out(workshop: Workshop) -> None:
    buyers = Witness(workshop.shards)
    await remove_what_foresees_the_index(workshop)
    await redis_lets_the_next_one_in_too_early(workshop.shards, buyers)
    # Nobody foresaw this refusal, so it has no good answer; but the promises hold.
    assert await buyers.violations() == {Rule.ANSWERS}
