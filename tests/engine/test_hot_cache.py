"""The hot cache, fed by the log of a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import pytest

from holdfast.engine.backend import NEVER_MS, Holder
from holdfast.engine.epochs import Epochs
from holdfast.engine.errors import BackendError
from holdfast.engine.hot_cache import HotCache, Taken
from holdfast.engine.layout import CompiledEvent, EventState, compile_event
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.loadtest.chaos.proxy import Proxy
from support.engine import SHARDS, Stage, document, stage
from support.polling import eventually

ALICE, BOB = uuid4(), uuid4()
MARKER = "C-10"


class Audience:
    """Somebody who asks the cache, and knows when it has caught up."""

    def __init__(self, on: Stage, cache: HotCache) -> None:
        self.on = on
        self.cache = cache

    def sees(
        self, seat_id: str, *, user: UUID = BOB, event: CompiledEvent | None = None, now_ms: int = 0
    ) -> Taken | None:
        event = event or self.on.event
        ordinal = self.on.event.seats[seat_id].value
        return self.cache.taken(event.organization_id, event.event_id, ordinal, user_id=user, now_ms=now_ms)

    async def catch_up(self) -> None:
        """Return once the cache knows all that has happened before: the log has an order."""
        reply = await self.on.hold(MARKER, ttl_ms=86_400_000)
        assert reply.status == Status.DONE
        await eventually(lambda: self.sees(MARKER), "the cache follows the log")
        assert reply.hold_id is not None
        await self.on.backend.release_holds(self.on.event, [reply.hold_id], user_id=None, reason="admin_override")
        await eventually(lambda: self.sees(MARKER) is None, "the cache follows the log")


@asynccontextmanager
async def following(url: str, cache: HotCache) -> AsyncIterator["asyncio.Task[None]"]:
    """The cache, fed over a connection of its own that does not mend itself."""
    async with Wire(url, timeout_s=60) as wire:
        feeding = asyncio.create_task(cache.follow(wire, Epochs.fixed(SHARDS, FIRST_EPOCH)))
        try:
            yield feeding
        finally:
            feeding.cancel()
            with suppress(asyncio.CancelledError, BackendError, TimeoutError):
                await feeding


@asynccontextmanager
async def audience(url: str, cache: HotCache | None = None) -> AsyncIterator[Audience]:
    cache = cache or HotCache()
    async with stage(url) as on, following(url, cache):
        watching = Audience(on, cache)
        # A log that is followed from somewhere in the middle may miss the first of these.
        await eventually(lambda: cache._following, "the cache follows the log")
        yield watching


async def test_a_held_seat_is_taken_for_others_and_not_for_its_holder(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        held = await anybody.on.hold("A-1", user=ALICE)
        await anybody.catch_up()
        assert anybody.sees("A-1") == Taken(held.until_ms)
        assert anybody.sees("A-1", user=ALICE) is None


async def test_it_never_says_that_a_seat_is_free(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        held = await anybody.on.hold("A-1", user=ALICE)
        await anybody.catch_up()
        # About a seat nobody has asked for, and one whose hold is over by this machine's clock, it says nothing.
        assert anybody.sees("A-2") is None
        assert anybody.sees("A-1", now_ms=held.until_ms - 1) is not None
        assert anybody.sees("A-1", now_ms=held.until_ms) is None


async def test_seats_of_the_same_number_elsewhere_are_other_seats(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        on = anybody.on
        # Given another event, and the same event of another organisation,
        other_event = compile_event(on.event.organization_id, document())
        other_organization = compile_event(uuid4(), on.event.document)
        for event in (other_event, other_organization):
            assert (await on.backend.open_event(event)).status == Status.DONE

        # when a seat is held in one, then it is taken there and nowhere else.
        await on.hold("A-1", user=ALICE)
        await on.backend.hold_seats(
            other_organization, Holder(hold_id=uuid4(), user_id=ALICE), seats=[other_organization.seats["A-2"]]
        )
        await anybody.catch_up()
        assert anybody.sees("A-1")
        assert anybody.sees("A-1", event=other_event) is None
        assert anybody.sees("A-1", event=other_organization) is None
        assert anybody.sees("A-2", event=other_organization)
        assert anybody.sees("A-2") is None


async def test_a_sold_seat_is_taken_for_good_and_for_everybody(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        held = await anybody.on.hold("A-1", user=ALICE)
        assert held.hold_id is not None
        await anybody.on.backend.confirm_holds(anybody.on.event, [held.hold_id], sale="sale", user_id=None)
        await anybody.catch_up()
        assert anybody.sees("A-1", now_ms=held.until_ms + 1) == Taken(NEVER_MS)
        assert anybody.sees("A-1", user=ALICE) == Taken(NEVER_MS)


async def test_a_blocked_seat_is_taken_until_it_is_unblocked(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        on, pair = anybody.on, anybody.on.event.seats["A-1"]
        await on.backend.block_seats(on.event, seats=[pair])
        await anybody.catch_up()
        assert anybody.sees("A-1") == Taken(0)
        await on.backend.unblock_seats(on.event, seats=[pair])
        await anybody.catch_up()
        assert anybody.sees("A-1") is None


@pytest.mark.parametrize("end", ["release", "expire"])
async def test_it_says_nothing_about_a_seat_that_came_free(redis_url: str, end: str) -> None:
    async with audience(redis_url) as anybody:
        on = anybody.on
        held = await on.hold("A-1", "A-2", user=ALICE)
        other = await on.hold("A-3", user=ALICE)
        await anybody.catch_up()
        assert anybody.sees("A-1")
        assert held.hold_id is not None
        if end == "release":
            await on.backend.release_holds(on.event, [held.hold_id], user_id=None, reason="user_cancelled")
        else:
            await on.lapse(held.hold_id)
            await on.backend.expire_holds(on.event.organization_id, on.event.event_id, limit=10)
        await anybody.catch_up()
        assert anybody.sees("A-1") is None
        assert anybody.sees("A-2") is None
        assert anybody.sees("A-3") == Taken(other.until_ms)


async def test_a_seat_that_changes_hands_is_taken_by_the_new_holder(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        held = await anybody.on.hold("A-1", user=ALICE)
        assert held.hold_id is not None
        await anybody.on.lapse(held.hold_id)
        again = await anybody.on.hold("A-1", user=BOB)
        assert again.status == Status.DONE
        await anybody.catch_up()
        assert anybody.sees("A-1", user=ALICE) == Taken(again.until_ms)
        assert anybody.sees("A-1", user=BOB) is None


async def test_a_closed_event_is_forgotten(redis_url: str) -> None:
    async with audience(redis_url) as anybody:
        on = anybody.on
        other = compile_event(uuid4(), document(state=EventState.DRAFT))
        await on.backend.open_event(other)
        await on.backend.block_seats(other, seats=[other.seats["A-1"]])
        await on.hold("A-2", user=ALICE)
        await anybody.catch_up()
        assert anybody.sees("A-1", event=other)
        assert (await on.backend.close_event(other)).status == Status.DONE
        # The other event may be in another shard, whose log has an order of its own.
        await eventually(lambda: anybody.sees("A-1", event=other) is None, "the event is forgotten")
        assert anybody.sees("A-2")


async def test_it_keeps_as_many_seats_as_it_may_and_the_latest_of_them(redis_url: str) -> None:
    async with audience(redis_url, HotCache(max_seats=3)) as anybody:
        for number in range(1, 6):
            await anybody.on.hold(f"A-{number}", user=ALICE)
        await eventually(lambda: anybody.sees("A-5"), "the cache follows the log")
        seen = [bool(anybody.sees(f"A-{number}")) for number in range(1, 6)]
        assert seen == [False, False, True, True, True]


async def test_it_is_silent_before_it_follows_the_log(redis_url: str) -> None:
    cache = HotCache()
    async with stage(redis_url) as on:
        anybody = Audience(on, cache)
        await on.hold("A-1", user=ALICE)
        assert anybody.sees("A-1") is None
        async with following(redis_url, cache):
            await eventually(lambda: cache._following, "the cache follows the log")
            await on.hold("A-2", user=ALICE)
            await eventually(lambda: anybody.sees("A-2"), "what happens from now on is known")
            # What happened before it followed is not.
            assert anybody.sees("A-1") is None
        assert anybody.sees("A-2") is None
        # And what it knew before it lost the log is no longer worth anything when it follows again.
        async with following(redis_url, cache):
            await eventually(lambda: cache._following, "the cache follows the log again")
            assert anybody.sees("A-2") is None


@pytest.mark.parametrize(
    ("fault", "error"), [("go_down", BackendError), ("stall", TimeoutError), ("half_open", TimeoutError)]
)
async def test_it_falls_silent_when_it_loses_the_log(redis_url: str, fault: str, error: type[Exception]) -> None:
    cache = HotCache(patience_s=1.5)
    async with stage(redis_url) as on, Proxy(redis_url) as proxy, following(proxy.url, cache) as feeding:
        anybody = Audience(on, cache)
        # Given a cache that knows a seat,
        await eventually(lambda: cache._following, "the cache follows the log")
        await on.hold("A-1", user=ALICE)
        await eventually(lambda: anybody.sees("A-1"), "the cache follows the log")

        # when the connection to the log breaks, or nothing comes over it any more,
        getattr(proxy, fault)()

        # then it says nothing, and whoever feeds it gets to know.
        await eventually(lambda: anybody.sees("A-1") is None, "the cache falls silent", within_s=5)
        with pytest.raises(error):
            await feeding


async def test_a_quiet_log_is_not_a_lost_one(redis_url: str) -> None:
    cache = HotCache(patience_s=1.5)
    async with stage(redis_url) as on, following(redis_url, cache) as feeding:
        anybody = Audience(on, cache)
        await eventually(lambda: cache._following, "the cache follows the log")
        await on.hold("A-1", user=ALICE)
        await eventually(lambda: anybody.sees("A-1"), "the cache follows the log")
        # For longer than its patience, nothing happens at all.
        done, _ = await asyncio.wait([feeding], timeout=2.5)
        assert not done
        assert anybody.sees("A-1")


async def test_a_feeder_that_is_told_to_stop_stops_whenever_that_is(redis_url: str) -> None:
    async with stage(redis_url), Wire(redis_url) as wire:
        for turns in range(30):
            feeding = asyncio.create_task(HotCache().follow(wire, Epochs.fixed(SHARDS, FIRST_EPOCH)))
            for _ in range(turns):
                await asyncio.sleep(0)
            feeding.cancel()
            async with asyncio.timeout(10):
                done, _ = await asyncio.wait([feeding])
            assert done == {feeding}
            assert feeding.cancelled()
