"""Many callers at once, over one wire and over several: nobody gets what another one has."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from uuid import UUID, uuid4

from model.replay import Replay
from model.rig import RedisInspector

from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.records import LogEntry, Pair, unpack_entry
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from support.engine import SHARDS, Stage, document, stage

CALLERS = 1000
WIRES = 3


@asynccontextmanager
async def several_backends(url: str) -> AsyncIterator[list[RedisBackend]]:
    """Backends as different front ends have them, each with a connection of its own."""
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(url, timeout_s=30)) for _ in range(WIRES)]
        yield [RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH) for wire in wires]


def seeded(number: int) -> random.Random:
    return random.Random(number)  # noqa: S311 - the same choices in every run


def somebody() -> Holder:
    return Holder(hold_id=uuid4(), user_id=uuid4())


async def log_of(on: Stage) -> list[LogEntry]:
    return [unpack_entry(*entry) for entry in await on.log()]


async def check_state(on: Stage, *, lapsed: bool = False) -> None:
    """Map, counters, owners, live holds and log must tell one and the same story.

    Holds that a test has made to lapse end earlier than the log says.
    """
    found = await RedisInspector(on.redis, on.keys).snapshot(0)
    reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)
    story = Replay(on.event)
    story.read(found.log)

    assert story.seq == found.last_seq == len(found.log)
    assert story.map == found.map == reading.map
    assert story.zones() == reading.zones
    assert story.live.keys() == found.live.keys()
    assert lapsed or story.live == found.live
    for zone in on.event.zones:
        seats = found.map[zone.first : zone.first + zone.length]
        counts = reading.zones[zone.index]
        if zone.length:
            assert (counts.held, counts.sold, counts.blocked) == tuple(seats.count(byte) for byte in (b"h", b"s", b"b"))
        assert counts.held + counts.sold <= counts.capacity
    for hold_id, record in found.records.items():
        if record.state in "hs":
            for seat in record.seats:
                assert (chr(found.map[seat.value]), found.owners[seat.value]) == (record.state, hold_id)


def seats_of(replies: Sequence[HoldReply]) -> list[Pair]:
    return [seat for reply in replies for seat in reply.seats]


async def test_a_thousand_callers_on_one_seat_have_one_winner(redis_url: str) -> None:
    async with stage(redis_url) as on:
        replies = await asyncio.gather(*(on.hold("A-1") for _ in range(CALLERS)))

        outcomes = Counter(reply.status for reply in replies)
        assert outcomes == {Status.DONE: 1, Status.SEAT_HELD_BY_ANOTHER_USER: CALLERS - 1}
        winner = next(reply for reply in replies if reply.status == Status.DONE)
        holds = [entry for entry in await log_of(on) if entry.operation != "open"]
        assert [(entry.operation, entry.hold_ids) for entry in holds] == [("hold", (winner.hold_id,))]
        # Everybody is told when the seat may come free again.
        assert {reply.until_ms for reply in replies} == {winner.until_ms}
        await check_state(on)


async def test_a_thousand_callers_for_four_together_fill_the_zone_and_never_overlap(redis_url: str) -> None:
    rows, per_row = 100, 20
    async with (
        stage(redis_url, document(rows=rows, per_row=per_row)) as on,
        several_backends(redis_url) as backends,
    ):
        replies = await asyncio.gather(
            *(
                backends[caller % WIRES].allocate_seats(on.event, somebody(), zones=[0], count=4)
                for caller in range(CALLERS)
            )
        )

        outcomes = Counter(reply.status for reply in replies)
        assert outcomes == {Status.DONE: rows * per_row // 4, Status.NO_AVAILABLE_SEATS: CALLERS - rows * per_row // 4}
        winners = [reply for reply in replies if reply.status == Status.DONE]
        taken = seats_of(winners)
        assert len(taken) == len(set(taken)) == rows * per_row
        for reply in winners:
            assert len({on.event.seat_at[seat.value].row for seat in reply.seats}) == 1
            numbers = [on.event.seat_at[seat.value].number for seat in reply.seats]
            assert all(right == left + 1 for left, right in pairwise(numbers))
        await check_state(on)


async def test_best_seats_go_first_whoever_asks(redis_url: str) -> None:
    async with stage(redis_url, document(rows=5, per_row=20)) as on:
        replies = await asyncio.gather(
            *(on.backend.allocate_seats(on.event, somebody(), zones=[0], count=4) for _ in range(10))
        )
        rows = Counter(on.event.seat_at[seat.value].row for seat in seats_of(replies))
        assert rows == {"A": 20, "B": 20}


async def test_repeats_of_one_request_are_one_hold(redis_url: str) -> None:
    async with stage(redis_url) as on, several_backends(redis_url) as backends:
        holder = somebody()
        wish = [on.event.seats["A-1"], on.event.seats["B-2"]]
        replies = await asyncio.gather(
            *(
                backends[number % WIRES].hold_seats(on.event, holder, seats=wish, quantities=[(1, 2)])
                for number in range(150)
            )
        )

        assert Counter(reply.status for reply in replies) == {Status.DONE: 1, Status.REPEATED: 149}
        assert len({(reply.hold_id, reply.until_ms, reply.position, reply.seats) for reply in replies}) == 1
        assert [entry.operation for entry in await log_of(on)] == ["open", "hold"]
        await check_state(on)


async def test_places_are_never_oversold(redis_url: str) -> None:
    async with stage(redis_url, document(floor=100)) as on, several_backends(redis_url) as backends:
        replies = await asyncio.gather(
            *(
                backends[caller % WIRES].hold_seats(on.event, somebody(), quantities=[(1, 3)])
                for caller in range(CALLERS)
            )
        )
        assert Counter(reply.status for reply in replies) == {Status.DONE: 33, Status.BLOCK_AT_CAPACITY: 967}
        await check_state(on)


async def test_a_hold_is_either_sold_or_released(redis_url: str) -> None:
    async with stage(redis_url, document(rows=10, per_row=10)) as on, several_backends(redis_url) as backends:
        # Given a hundred holds,
        held = await asyncio.gather(*(on.hold(seat_id) for seat_id in on.event.seats))
        ids = [reply.hold_id for reply in held if reply.hold_id]

        # when for each of them a payment, a cancellation and another buyer arrive together,
        async def fate(number: int, hold_id: UUID) -> None:
            arrivals = [
                backends[0].confirm_holds(on.event, [hold_id], sale=f"sale {number}", user_id=None),
                backends[1].release_holds(on.event, [hold_id], user_id=None, reason="user_cancelled"),
                backends[2].hold_seats(on.event, somebody(), seats=list(held[number].seats)),
            ]
            seeded(number).shuffle(arrivals)
            await asyncio.gather(*arrivals)

        await asyncio.gather(*(fate(number, hold_id) for number, hold_id in enumerate(ids)))

        # then each was sold once or released once, and never both.
        endings: dict[UUID, list[str]] = {hold_id: [] for hold_id in ids}
        for entry in await log_of(on):
            if entry.operation in ("sell", "release"):
                for hold_id in entry.hold_ids:
                    endings[hold_id].append(entry.operation)
        assert {len(ends) for ends in endings.values()} == {1}
        await check_state(on)


async def test_a_crowd_that_does_everything_at_once_keeps_the_books_in_order(redis_url: str) -> None:
    async with (
        stage(redis_url, document(rows=4, per_row=5, capacity=15, floor=12)) as on,
        several_backends(redis_url) as backends,
    ):
        sold: list[Pair] = []

        async def visitor(number: int) -> None:
            backend, choice = backends[number % WIRES], seeded(number)
            own: list[UUID] = []
            for _ in range(40):
                holder = Holder(hold_id=uuid4(), user_id=UUID(int=number))
                match choice.randrange(7):
                    case 0 | 1:
                        wish = choice.sample(list(on.event.seats.values()), k=choice.randint(1, 3))
                        held = await backend.hold_seats(on.event, holder, seats=wish, quantities=[(1, 1)])
                        own += [held.hold_id] if held.status == Status.DONE and held.hold_id else []
                    case 2:
                        held = await backend.allocate_seats(on.event, holder, zones=[0], count=2)
                        own += [held.hold_id] if held.status == Status.DONE and held.hold_id else []
                    case 3 if own:
                        await backend.release_holds(
                            on.event, [choice.choice(own)], user_id=None, reason="user_cancelled"
                        )
                    case 4 if own and choice.random() < 0.2:
                        paid = await backend.confirm_holds(
                            on.event, [choice.choice(own)], sale=f"sale {number}", user_id=None
                        )
                        sold.extend(paid.seats if paid.status == Status.DONE else ())
                    case 5 if own:
                        await on.redis.zadd(on.keys.key("expiry"), {choice.choice(own).bytes: 1}, xx=True)
                    case _:
                        await backend.expire_holds(on.event.organization_id, on.event.event_id, limit=5)

        await asyncio.gather(*(visitor(number) for number in range(30)))

        # Every sale that was acknowledged stands, and no seat was sold twice.
        reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=True)
        assert len(sold) == len(set(sold)) == reading.zones[0].sold > 0
        assert {chr(reading.map[seat.value]) for seat in sold} == {"s"}
        await check_state(on, lapsed=True)
