"""What one process sees of Redis, and what live front ends make of it together."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from holdfast.engine.background import beside
from holdfast.engine.breaker import Breakers, Opinion
from holdfast.engine.epochs import Epochs, Mode
from holdfast.engine.errors import Fenced
from holdfast.engine.monitor import Monitor
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.loadtest.chaos.proxy import Proxy
from holdfast.persistence.ballot import FRONT_END, KEEPER, Ballot, list_voters
from holdfast.persistence.transitions import Cause, close_and_drain, read_states, to_db
from support.engine import SHARDS
from support.fallback import Fallback
from support.polling import eventually

CAUSE = Cause("a test", "a test")
A_WHILE = "UPDATE voters SET seen_at = seen_at - interval '1 minute' WHERE name = $1"


class Electorate:
    """Front ends and keepers that say what a test has them say of the event's shard."""

    def __init__(self, shards: Fallback) -> None:
        self._shards = shards

    def voter(self, name: str, kind: str = FRONT_END) -> Ballot:
        ballot = Ballot(self._shards.servers.pool, kind)
        ballot.name = name
        return ballot

    async def votes(self, ballot: Ballot, epoch: int) -> bool:
        """Have one vote against Redis; returns whether that has changed the mode."""
        changes = await ballot.cast({self._shards.shard: (epoch, "no answer")}, reaches_redis=False)
        return bool(changes)

    async def lives(self, ballot: Ballot) -> None:
        """Have one say that all is well."""
        await ballot.cast({}, reaches_redis=True)


@pytest.fixture
def electorate(shards: Fallback) -> Electorate:
    return Electorate(shards)


async def test_all_live_front_ends_must_agree(shards: Fallback, electorate: Electorate) -> None:
    before, one, two = await shards.state(), electorate.voter("one"), electorate.voter("two")
    await electorate.lives(two)
    assert not await electorate.votes(one, before.epoch)
    assert await shards.state() == before

    assert await electorate.votes(two, before.epoch)
    after = await shards.state()
    assert (after.mode, after.epoch > before.epoch) == (Mode.DB, True)
    assert await shards.value("SELECT actor FROM transitions ORDER BY id DESC LIMIT 1") == "vote of one, two"


async def test_the_only_one_decides_alone(shards: Fallback, electorate: Electorate) -> None:
    assert await electorate.votes(electorate.voter("one"), (await shards.state()).epoch)
    assert (await shards.state()).mode is Mode.DB


async def test_one_that_has_gone_silent_or_left_does_not_count(shards: Fallback, electorate: Electorate) -> None:
    silent, left = electorate.voter("silent"), electorate.voter("left")
    for ballot in (silent, left):
        await electorate.lives(ballot)
    async with shards.servers.pool.acquire() as connection:
        await connection.execute(A_WHILE, "silent")
    await left.withdraw()
    assert await electorate.votes(electorate.voter("one"), (await shards.state()).epoch)


async def test_a_vote_can_be_taken_back(shards: Fallback, electorate: Electorate) -> None:
    before, one, two = await shards.state(), electorate.voter("one"), electorate.voter("two")
    await electorate.lives(two)
    assert not await electorate.votes(one, before.epoch)
    await electorate.lives(one)
    assert not await electorate.votes(two, before.epoch)
    assert await shards.state() == before


async def test_a_vote_of_another_epoch_counts_for_nothing(shards: Fallback, electorate: Electorate) -> None:
    before = await shards.state()
    assert not await electorate.votes(electorate.voter("one"), before.epoch - 1)
    assert await shards.state() == before


async def test_of_two_that_count_the_same_votes_one_makes_the_change(shards: Fallback, electorate: Electorate) -> None:
    before, one = await shards.state(), electorate.voter("one")
    assert await electorate.votes(one, before.epoch)
    after = await shards.state()
    assert not await electorate.votes(one, before.epoch)
    assert await shards.state() == after


async def test_keepers_speak_only_where_no_front_end_lives(shards: Fallback, electorate: Electorate) -> None:
    before, keeper, front_end = await shards.state(), electorate.voter("keeper", KEEPER), electorate.voter("one")
    await electorate.lives(front_end)
    assert not await electorate.votes(keeper, before.epoch)
    await front_end.withdraw()
    assert await electorate.votes(keeper, before.epoch)


async def test_a_shard_that_is_closed_in_good_order_is_not_voted_on(shards: Fallback, electorate: Electorate) -> None:
    before, servers = await shards.state(), shards.servers
    await close_and_drain(servers.redis, servers.pool, await shards.keys())
    assert not await electorate.votes(electorate.voter("one"), before.epoch)
    assert await shards.state() == before


# What a process sees.


class CountedMonitor(Monitor):
    """A monitor that knows how often it has looked."""

    looks = 0

    async def look(self) -> None:
        self.looks += 1
        await super().look()


class Watched:
    """A monitor by a proxy, its breakers, and how often it has reported."""

    def __init__(self, wire: Wire, epochs: Epochs, ballot: Ballot, proxy: Proxy, probe_s: float) -> None:
        self._ballot = ballot
        self.breakers = Breakers(epochs)
        self.monitor = CountedMonitor(wire, epochs, self.breakers, self._report, probe_s=probe_s)
        self.proxy = proxy
        self.reports = 0

    async def _report(self, opinions: Mapping[int, Opinion], reachable: bool) -> None:
        self.reports += 1
        await self._ballot.report(opinions, reachable)


@asynccontextmanager
async def watching(shards: Fallback, ballot: Ballot, probe_s: float = 1.0) -> AsyncIterator[Watched]:
    async with Proxy(shards.redis_url) as proxy, Wire(proxy.url, timeout_s=1) as wire:
        async with shards.servers.pool.acquire() as connection:
            epochs = Epochs(SHARDS, await read_states(connection, range(SHARDS)))
        watched = Watched(wire, epochs, ballot, proxy, probe_s)
        async with beside(watched.monitor.run()):
            yield watched


async def test_a_server_that_is_gone_opens_the_breakers_until_it_is_back(
    shards: Fallback, electorate: Electorate
) -> None:
    # Another front end is well, so nothing comes of it but an opinion.
    async with shards.front(), watching(shards, electorate.voter("one")) as watched:
        watched.proxy.go_down()
        opinions = await eventually(lambda: watched.breakers.opinions, "the breakers open")
        assert sorted(opinions) == list(range(SHARDS))
        assert not any(opinion.fenced for opinion in opinions.values())
        assert not watched.monitor.reachable

        watched.proxy.come_up()
        await eventually(lambda: not watched.breakers.troubled, "the breakers close")
        assert watched.monitor.reachable


async def test_a_server_that_lost_its_data_is_fenced_at_once(shards: Fallback, electorate: Electorate) -> None:
    async with shards.front(), watching(shards, electorate.voter("one")) as watched:
        await shards.servers.redis.flushall()
        await watched.monitor.look()
        opinion = watched.breakers.opinion(shards.shard)
        assert opinion is not None
        assert (opinion.fenced, opinion.reason) == (True, "Redis has lost its data")


async def test_a_process_that_looks_seldom_still_says_that_it_lives(shards: Fallback, electorate: Electorate) -> None:
    """Given Postgres serves and Redis stays away, one that waits ever longer between looks still reports."""
    for shard in range(SHARDS):
        async with shards.servers.pool.acquire() as connection:
            state = (await read_states(connection, [shard]))[shard]
        await to_db(shards.servers.pool, shard, state, CAUSE)
    async with watching(shards, electorate.voter("patient"), probe_s=3_600) as watched:
        watched.proxy.go_down()
        await eventually(lambda: watched.reports > watched.monitor.looks + 2, "it reports more often than it looks")
        assert not watched.monitor.reachable
        async with shards.servers.pool.acquire() as connection:
            assert "patient" in [voter.name for voter in await list_voters(connection)]


async def test_an_open_breaker_turns_calls_away_before_they_reach_redis(shards: Fallback) -> None:
    event, log = shards.event, (await shards.keys()).key("log")
    async with shards.front(votes=False) as front, beside(shards.persister().run()):
        state = await front.sees(event, Mode.REDIS)
        entries = await shards.servers.redis.xlen(log)
        front.breakers.trip(shards.shard, state.epoch, "a test")
        with pytest.raises(Fenced):
            await front.hold(event, "A-1")
        assert await shards.servers.redis.xlen(log) == entries

        front.breakers.close(shards.shard)
        assert (await front.hold(event, "A-1")).status is Status.DONE
