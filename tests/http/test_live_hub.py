"""The hub on a real feed: what readers are told, in which order, and what becomes of those who do not keep up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.engine.layout import CompiledEvent
from holdfast.engine.settings import Settings
from holdfast.http import live_hub
from holdfast.http.live_hub import Hub, HubFull, Reader, Topic
from holdfast.persistence.feed import Feed, follow_feed
from support.outbox import add_row, publishing
from support.persisting import Rig, rigged, running
from support.polling import eventually
from support.scripts import held, pairs, places_held, release, sell
from support.workload import buyers

QUIET_S = 60.0


class View:
    """What a client makes of the messages it reads, as the documentation says it should."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.messages: list[dict[str, Any]] = []
        self.seats: list[str] = []
        self.last_id: int | None = None

    async def read(self) -> bool:
        """Take in whatever waits; False at the end."""
        waiting = await self._reader.next(QUIET_S)
        if waiting is None:
            return False
        for text in waiting.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(":"))
            if "data" not in fields:
                continue
            content = json.loads(fields["data"])
            self.messages.append({"event": fields["event"], "id": fields.get("id"), **content})
            if "id" in fields:
                assert self.last_id is None or int(fields["id"]) > self.last_id
                self.last_id = int(fields["id"])
        return True

    @property
    def changes(self) -> list[tuple[str, tuple[str, ...]]]:
        found = [change for message in self.messages for change in message.get("changes", ())]
        return [(change["event"], tuple(change["seat_ids"])) for change in found]

    def map(self, seat_ids: list[str]) -> dict[str, str]:
        """The seats after the snapshot and everything that followed it."""
        seats: dict[str, str] = {}
        letters = {"seat_held": "h", "seat_sold": "s", "seats_blocked": "b"}
        for message in self.messages:
            if message["event"] == "snapshot":
                seats = dict(zip(seat_ids, message["map"], strict=True))
            for change in message.get("changes", ()):
                for seat_id in change["seat_ids"]:
                    seats[seat_id] = letters.get(change["event"], ".")
        return seats

    async def until(self, count: int) -> None:
        """Read until there were so many changes."""
        while len(self.changes) < count:
            assert await self.read()


@pytest.fixture
async def rig(redis_url: str, database_dsn: str) -> AsyncIterator[Rig]:
    async with rigged(redis_url, database_dsn) as made:
        await made.drain()
        yield made


@asynccontextmanager
async def hub_of(rig: Rig, redis_url: str, **options: Any) -> AsyncIterator[Hub]:
    """A hub that follows what the rig persists and a publisher announces."""
    hub = Hub(Feed(rig.pool), **options)
    settings = Settings(redis_url=redis_url, postgres_dsn=rig.dsn)
    async with publishing(settings), running(hub.run(), follow_feed(rig.dsn, hub.hear, hub.catch_up)):
        yield hub


async def truth(rig: Rig) -> dict[str, str]:
    letters = {"available": ".", "held": "h", "sold": "s", "blocked": "b"}
    rows = await rig.fetch("SELECT seat_id, status FROM seats WHERE event_id = $1", rig.event.event_id)
    return {row["seat_id"]: letters[row["status"]] for row in rows}


async def announced(rig: Rig) -> bool:
    return bool(await rig.value("SELECT coalesce(bool_and(position IS NOT NULL), true) FROM outbox"))


async def test_a_reader_gets_a_snapshot_and_then_changes_in_their_order(rig: Rig, redis_url: str) -> None:
    before = await held(rig.on, "A-1")
    await rig.drain()
    async with hub_of(rig, redis_url) as hub:
        await eventually(lambda: announced(rig), "everything is announced")
        async with hub.reader(rig.event) as reader:
            view = View(reader)
            await view.read()
            hold = await held(rig.on, "A-2", "A-3")
            await rig.drain()
            await release(rig.on, before)
            await sell(rig.on, hold)
            await rig.drain()
            await rig.on.backend.block_seats(rig.event, seats=pairs(rig.on, "A-1"))
            await rig.on.backend.unblock_seats(rig.event, seats=pairs(rig.on, "A-1"))
            await places_held(rig.on, 3)
            await rig.drain()
            await view.until(6)

        snapshot, *rest = view.messages
        assert snapshot["event"] == "snapshot"
        assert snapshot["map"] == "h" + "." * 29
        assert snapshot["zones"] == [
            {"zone_id": "orchestra", "offset": 0, "seats": 30},
            {"zone_id": "floor", "offset": 30, "seats": 0},
        ]
        assert snapshot["config_version"] == rig.event.version
        assert view.changes == [
            ("seat_held", ("A-2", "A-3")),
            ("seat_released", ("A-1",)),
            ("seat_sold", ("A-2", "A-3")),
            ("seats_blocked", ("A-1",)),
            ("seats_unblocked", ("A-1",)),
            ("seat_held", ()),
        ]
        places = rest[-1]["changes"][-1]
        assert places["quantities"] == [{"zone_id": "floor", "quantity": 3}]
        assert rest[-1]["occupancy"]["held"] == 3
        assert "user_id" not in json.dumps(view.messages)
        assert "hold_id" not in json.dumps(view.messages)


async def test_snapshot_and_changes_make_the_true_map_whenever_one_joins(rig: Rig, redis_url: str) -> None:
    # Given a sale in full swing
    persister = rig.persister()

    async def persist() -> None:
        while True:
            await persister.step(block_ms=5)

    seat_ids = list(rig.event.seats)
    views: list[View] = []
    async with hub_of(rig, redis_url) as hub:
        async with running(persist(), buyers(rig, 4)):
            # When readers join at any moment of it
            contexts = []
            for _ in range(10):
                context = hub.reader(rig.event)
                contexts.append(context)
                views.append(View(await context.__aenter__()))
                await asyncio.sleep(0.02)
            await eventually(lambda: rig.value("SELECT count(*) > 200 FROM outbox"), "much has happened")
        await rig.drain()
        await eventually(lambda: announced(rig), "everything is announced")
        last = await rig.value("SELECT max(position) FROM outbox")

        # Then each ends with the seats as they are
        for view in views:
            while (view.last_id or 0) < last:
                assert await view.read()
            assert view.map(seat_ids) == await truth(rig)
        for context in contexts:
            await context.__aexit__(None, None, None)


async def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url) as hub:
        async with hub.reader(rig.event) as reader:
            first = View(reader)
            await held(rig.on, "A-1")
            await rig.drain()
            await first.until(1)
        for seat in ("A-2", "A-3", "A-4"):
            await held(rig.on, seat)
            await rig.drain()
        await eventually(lambda: announced(rig), "everything is announced")

        async with hub.reader(rig.event, after=first.last_id) as reader:
            second = View(reader)
            await second.until(3)
            await held(rig.on, "A-5")
            await rig.drain()
            await second.until(4)

    assert [message["event"] for message in second.messages if message["event"] == "snapshot"] == []
    assert [seats for _, seats in first.changes + second.changes] == [(f"A-{number}",) for number in range(1, 6)]


async def test_a_reader_that_missed_too_much_starts_over(
    rig: Rig, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hub, "RESUMED_MAX", 2)
    for seat in ("A-1", "A-2", "A-3"):
        await held(rig.on, seat)
    await rig.drain()
    async with hub_of(rig, redis_url) as hub:
        await eventually(lambda: announced(rig), "everything is announced")
        async with hub.reader(rig.event, after=0) as reader:
            view = View(reader)
            await view.read()

            assert view.messages[0]["event"] == "snapshot"
            assert view.map(list(rig.event.seats)) == await truth(rig)


async def test_a_reader_that_names_a_position_nobody_gave_starts_over(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url) as hub, hub.reader(rig.event, after=10**12) as reader:
        view = View(reader)
        await view.read()

        assert view.messages[0]["event"] == "snapshot"


async def test_a_slow_reader_is_dropped_and_the_others_are_not(
    rig: Rig, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hub, "QUEUE_MAX", 2)
    async with (
        hub_of(rig, redis_url) as hub,
        hub.reader(rig.event) as slow,
        hub.reader(rig.event) as quick,
    ):
        idle, view = View(slow), View(quick)
        await idle.read()
        for number in range(1, 6):
            await held(rig.on, f"A-{number}")
            await rig.drain()
            await view.until(number)

        assert await idle.read()
        assert idle.messages[-1] == {"event": "end", "id": None, "reason": "too_slow"}
        assert not await idle.read()

        # And it finds everything it missed when it comes back with the last id it has got
        async with hub.reader(rig.event, after=idle.last_id) as reader:
            back = View(reader)
            await back.until(5)
        assert back.changes == view.changes


async def test_a_quiet_feed_sends_heartbeats(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url) as hub, hub.reader(rig.event) as reader:
        assert (await reader.next(QUIET_S) or b"").startswith(b"id: 0\nevent: snapshot\n")
        assert await reader.next(0.01) == b": still here\n\n"


async def test_readers_are_let_go_when_the_hub_closes(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url) as hub, hub.reader(rig.event) as reader:
        view = View(reader)
        await view.read()
        hub.close()

        assert await view.read()
        assert view.messages[-1]["reason"] == "draining"
        assert not await view.read()


async def test_there_are_no_more_readers_than_may_be(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url, readers_max=1) as hub:
        async with hub.reader(rig.event):
            with pytest.raises(HubFull):
                async with hub.reader(rig.event):
                    pass
        async with hub.reader(rig.event):
            assert hub.readers == 1
        assert hub.readers == 0


async def test_a_lost_connection_loses_no_change(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url) as hub, hub.reader(rig.event) as reader:
        view = View(reader)
        await view.read()
        listeners = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'holdfast feed'"
        )
        await eventually(lambda: rig.value(listeners), "the hub's connection is ended")
        await held(rig.on, "A-1")
        await rig.drain()
        await view.until(1)

        assert view.changes == [("seat_held", ("A-1",))]


async def test_changes_go_on_while_redis_takes_no_announcements(rig: Rig) -> None:
    hub = Hub(Feed(rig.pool))
    nowhere = Settings(redis_url="redis://127.0.0.1:1/0", postgres_dsn=rig.dsn)
    async with (
        publishing(nowhere),
        running(hub.run(), follow_feed(rig.dsn, hub.hear, hub.catch_up)),
        hub.reader(rig.event) as reader,
    ):
        view = View(reader)
        await held(rig.on, "A-1")
        await rig.drain()
        await view.until(1)


async def test_a_thousand_readers_get_the_same_bytes(rig: Rig, redis_url: str) -> None:
    async with hub_of(rig, redis_url) as hub:
        contexts = [hub.reader(rig.event) for _ in range(1_000)]
        readers = [await context.__aenter__() for context in contexts]
        firsts = {await reader.next(QUIET_S) for reader in readers}
        await held(rig.on, "A-1")
        await rig.drain()
        seconds = [await reader.next(QUIET_S) for reader in readers]
        for context in contexts:
            await context.__aexit__(None, None, None)

    assert len(firsts) == 1
    assert len(set(seconds)) == 1
    assert hub.readers == 0


async def test_an_event_is_prepared_once_for_all_its_readers(
    rig: Rig, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[Topic] = []

    class Counted(Topic):
        def __init__(self, event: CompiledEvent) -> None:
            super().__init__(event)
            prepared.append(self)

    monkeypatch.setattr(live_hub, "Topic", Counted)
    async with hub_of(rig, redis_url) as hub, hub.reader(rig.event), hub.reader(rig.event):
        assert len(prepared) == 1


async def test_many_readers_are_told_some_at_a_time(rig: Rig, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given so many readers that a round of them takes much longer than this test
    monkeypatch.setattr(live_hub, "_AT_A_TIME", 2)
    monkeypatch.setattr(live_hub, "_SENDING_S", 60.0)
    monkeypatch.setattr(live_hub, "_ROUND_MAX_S", 3600.0)
    async with hub_of(rig, redis_url) as hub, AsyncExitStack() as joined:
        readers = [await joined.enter_async_context(hub.reader(rig.event)) for _ in range(6)]
        for reader in readers:
            await reader.next(QUIET_S)
        await held(rig.on, "A-1")
        await rig.drain()

        # when the first of them are told, the others are not yet,
        told = await eventually(lambda: [reader for reader in readers if reader.waiting], "somebody is told")
        assert len(told) == 2

        # and whoever joins meanwhile has seen it, and will not be told again.
        late = View(await joined.enter_async_context(hub.reader(rig.event)))
        await late.read()
        assert late.map(list(rig.event.seats)) == await truth(rig)


def test_a_reader_that_started_over_is_not_told_what_was_on_its_way() -> None:
    reader = Reader()
    assert reader.offer(b"9", 9)
    reader.restart(b"everything up to 10", 10)
    assert not reader.waiting

    assert reader.offer(b"10", 10)
    assert not reader.waiting
    assert reader.offer(b"11", 11)
    assert reader.waiting


async def test_a_change_that_commits_late_is_not_lost(rig: Rig, redis_url: str) -> None:
    # Given a transaction that has drawn its number in the outbox, and another that comes later but commits first
    async with hub_of(rig, redis_url) as hub, hub.reader(rig.event) as reader, rig.pool.acquire() as slow:
        scope = (rig.event.organization_id, rig.event.event_id)
        view = View(reader)
        await view.read()
        transaction = slow.transaction()
        await transaction.start()
        late = await add_row(slow, *scope, seat_ids=["A-1"])
        async with rig.pool.acquire() as quick:
            early = await add_row(quick, *scope, seat_ids=["A-2"])
        assert late < early
        await view.until(1)
        await transaction.commit()

        # Then both are told, each after its commit
        await view.until(2)
        assert view.changes == [("seat_held", ("A-2",)), ("seat_held", ("A-1",))]
