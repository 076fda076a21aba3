"""Waiting for the commit: who is answered when, and by what if the notification or the commit does not come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from holdfast.engine.acks import Ack, Acks
from holdfast.engine.backend import Holder, HoldReply, HoldsReply, Position
from holdfast.engine.durable import DurableBackend
from holdfast.engine.epochs import Epochs
from holdfast.engine.errors import Uncommitted, Unknown
from holdfast.engine.records import pack_zone
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.persistence.controls import check_current
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.persister import MARKS_CHANNEL, Committed
from support.database import execute
from support.engine import SHARDS
from support.persisting import Rig, eventually, following, is_listening, listener_pid, rigged, running
from support.scripts import pairs, seat_byte

PATIENT_S = 20.0


class Desk:
    """What a front end has: a durable backend, and a listener. The test has the persister."""

    def __init__(self, rig: Rig, acks: Acks) -> None:
        self.rig = rig
        self.acks = acks
        self.backend = DurableBackend(rig.on.backend, acks, timeout_s=PATIENT_S)

    async def hold(
        self, *seats: str, hold_id: UUID | None = None, user: UUID | None = None, ack: Ack = Ack.POSTGRES
    ) -> HoldReply:
        holder = Holder(hold_id=hold_id or uuid4(), user_id=user or uuid4())
        return await self.backend.hold_seats(self.rig.event, holder, seats=pairs(self.rig.on, *seats), ack=ack)

    async def waiting(self) -> bool:
        return bool(self.acks.oldest_waiting)

    @asynccontextmanager
    async def asking(self, call: Awaitable[HoldReply]) -> AsyncIterator["asyncio.Future[HoldReply]"]:
        """A call that waits for its commit when the block begins."""
        task = asyncio.ensure_future(call)
        try:
            await eventually(self.waiting, "a call waits")
            assert not task.done()
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def desk(redis_url: str, database_dsn: str) -> AsyncIterator[Desk]:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        async with following(database_dsn) as acks:
            yield Desk(rig, acks)


@pytest.fixture
async def served(desk: Desk) -> AsyncIterator[Desk]:
    """The same with a persister that runs."""
    async with running(desk.rig.persister().run()):
        yield desk


async def test_a_hold_returns_once_its_row_is_there_for_everybody(served: Desk) -> None:
    async with asyncio.timeout(PATIENT_S):
        for number in range(1, 11):
            reply = await served.hold(f"A-{number}")
            # Another connection sees it at this very moment.
            seen = await execute(served.rig.dsn, "SELECT status FROM seat_holds WHERE hold_id = $1", reply.hold_id)
            assert (reply.status, seen) == (Status.DONE, "active")


async def test_a_hold_does_not_return_before_its_commit(desk: Desk) -> None:
    connection = await asyncpg.connect(desk.rig.dsn)
    try:
        blocking = connection.transaction()
        await blocking.start()
        await connection.execute("LOCK TABLE seat_holds IN EXCLUSIVE MODE")
        async with desk.asking(desk.hold("A-1")) as call, running(desk.rig.persister().run()):
            await eventually(lambda: waits_for_table(desk.rig), "the persister waits for the table")
            assert not call.done()
            await blocking.commit()
            assert (await call).status is Status.DONE
    finally:
        await connection.close()


async def waits_for_table(rig: Rig) -> bool:
    return bool(await rig.value("SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted"))


async def test_every_operation_waits_for_its_commit(served: Desk) -> None:
    user, event, backend = uuid4(), served.rig.event, served.backend
    limits = {"user_id": user, "key": "k", "extension_ms": 1000, "total_ms": 3_600_000}
    calls: list[Callable[[UUID], Awaitable[HoldReply | HoldsReply]]] = [
        lambda hold_id: backend.allocate_seats(event, Holder(hold_id=hold_id, user_id=user), zones=[0], count=2),
        lambda hold_id: backend.extend_holds(event, [hold_id], **limits),
        lambda hold_id: backend.confirm_holds(event, [hold_id], sale="sale-1", user_id=user),
    ]
    hold_id = uuid4()
    statuses = []
    for call in calls:
        reply = await call(hold_id)
        assert reply.status is Status.DONE
        row = "SELECT status || ' ' || extension_key FROM seat_holds WHERE hold_id = $1 AND seq = $2"
        statuses.append(await execute(served.rig.dsn, row, hold_id, reply.position.seq))
    other = await served.hold("C-1", user=user)
    assert other.hold_id is not None
    reply = await backend.release_holds(event, [other.hold_id], user_id=user, reason="user_cancelled")
    statuses.append(await execute(served.rig.dsn, "SELECT status FROM seat_holds WHERE hold_id = $1", other.hold_id))

    assert statuses == ["active ", "active k", "converted k", "cancelled"]


async def test_where_redis_is_enough_nobody_waits(desk: Desk) -> None:
    user, event, backend = uuid4(), desk.rig.event, desk.backend
    async with asyncio.timeout(PATIENT_S / 2):
        held = await desk.hold("A-1", user=user, ack=Ack.REDIS)
        assert held.hold_id is not None
        best = await backend.allocate_seats(
            event, Holder(hold_id=uuid4(), user_id=user), zones=[0], count=2, ack=Ack.REDIS
        )
        extended = await backend.extend_holds(
            event, [held.hold_id], user_id=user, key="k", extension_ms=1000, total_ms=3_600_000, ack=Ack.REDIS
        )
        released = await backend.release_holds(
            event, [held.hold_id], user_id=user, reason="user_cancelled", ack=Ack.REDIS
        )

    assert [reply.status for reply in (held, best, extended, released)] == [Status.DONE] * 4
    assert await desk.rig.hold_rows(held.hold_id) == []


async def test_a_sale_waits_although_its_hold_did_not(desk: Desk) -> None:
    held = await desk.hold("A-1", ack=Ack.REDIS)
    assert held.hold_id is not None
    sale = asyncio.ensure_future(
        desk.backend.confirm_holds(desk.rig.event, [held.hold_id], sale="sale-1", user_id=None)
    )
    await eventually(desk.waiting, "the sale waits")
    await desk.rig.drain()

    assert (await sale).status is Status.DONE
    assert await desk.rig.value("SELECT sale_id FROM tickets") == "sale-1"


async def test_refusals_never_wait(desk: Desk) -> None:
    await desk.hold("A-1", ack=Ack.REDIS)
    async with asyncio.timeout(PATIENT_S / 2):
        taken = await desk.hold("A-1")
        unknown = await desk.backend.release_holds(desk.rig.event, [uuid4()], user_id=None, reason="admin_override")

    assert (taken.status, unknown.status) == (Status.SEAT_HELD_BY_ANOTHER_USER, Status.HOLD_NOT_FOUND)


async def test_a_repeat_waits_for_what_it_repeats(desk: Desk) -> None:
    hold_id, user = uuid4(), uuid4()
    await desk.hold("A-1", hold_id=hold_id, user=user, ack=Ack.REDIS)
    async with desk.asking(desk.hold("A-1", hold_id=hold_id, user=user)) as repeat:
        await desk.rig.drain()
        reply = await repeat

    assert reply.status is Status.REPEATED
    assert await desk.rig.hold_rows(hold_id)


async def test_a_commit_that_nobody_announced_is_asked_for(desk: Desk) -> None:
    async with desk.asking(desk.hold("A-1")) as call:
        # The mark moves, and no notification tells of it.
        await desk.rig.execute("UPDATE shard_marks SET seq = 2 WHERE shard = $1", desk.rig.shard)
        assert (await call).status is Status.DONE


async def test_a_listener_that_lost_its_connection_listens_again_and_asks_for_what_it_missed(desk: Desk) -> None:
    async with desk.asking(desk.hold("A-1")) as call:
        await cut_off(desk)
        await desk.rig.drain()
        assert (await call).status is Status.DONE

    async with running(desk.rig.persister().run()):
        assert (await desk.hold("A-2")).status is Status.DONE


async def cut_off(desk: Desk) -> None:
    """End the session on which notifications are heard."""
    pid = await eventually(lambda: listener_pid(desk.rig.dsn), "somebody listens")
    await desk.rig.execute("SELECT pg_terminate_backend($1::int)", pid)


async def test_a_commit_that_does_not_come_is_unknown_and_the_same_key_finds_out(desk: Desk) -> None:
    hasty = DurableBackend(desk.rig.on.backend, desk.acks, timeout_s=0.05)
    holder = Holder(hold_id=uuid4(), user_id=uuid4())
    seats = pairs(desk.rig.on, "A-1")

    with pytest.raises(Unknown, match=r"not committed in time.*repeat with the same key"):
        await hasty.hold_seats(desk.rig.event, holder, seats=seats)
    await desk.rig.drain()
    repeat = await desk.backend.hold_seats(desk.rig.event, holder, seats=seats)

    assert (repeat.status, repeat.hold_id) == (Status.REPEATED, holder.hold_id)


async def test_a_repeat_is_acknowledged_only_while_its_epoch_is_current(desk: Desk) -> None:
    # Given a committed hold, and a front end that believes its epoch is the current one,
    epochs = Epochs.fixed(SHARDS, FIRST_EPOCH)
    is_current = partial(check_current, desk.rig.pool, epochs)
    checked = DurableBackend(desk.rig.on.backend, desk.acks, is_current=is_current)
    holder, seats = Holder(hold_id=uuid4(), user_id=uuid4()), pairs(desk.rig.on, "A-1")
    async with desk.asking(checked.hold_seats(desk.rig.event, holder, seats=seats)) as held:
        await desk.rig.drain()
        assert (await held).status is Status.DONE
    assert (await checked.hold_seats(desk.rig.event, holder, seats=seats)).status is Status.REPEATED

    # when Postgres takes the shard over, and the epoch's keys are still open in Redis,
    await desk.rig.execute("UPDATE control SET mode = 'db', epoch = 1000000 WHERE shard = $1", desk.rig.shard)

    # then Redis still answers with the old hold, but nobody knows what became of it since: it is not acknowledged.
    again = Holder(hold_id=uuid4(), user_id=holder.user_id)
    for asked in (holder, again):
        with pytest.raises(Unknown, match="taken over"):
            await checked.hold_seats(desk.rig.event, asked, seats=seats)
    assert (await desk.backend.hold_seats(desk.rig.event, again, seats=seats)).status is Status.ALREADY_HELD


async def test_a_hold_that_postgres_rejects_is_refused_and_its_seat_is_free_again(served: Desk) -> None:
    await served.rig.execute("UPDATE seats SET status = 'sold' WHERE seat_id = 'A-1'")
    hold_id, user = uuid4(), uuid4()

    reply = await served.hold("A-1", "A-2", hold_id=hold_id, user=user)

    assert (reply.status, reply.hold_id, reply.seats, reply.until_ms) == (Status.SEAT_NOT_AVAILABLE, None, (), 0)
    assert await served.rig.hold_rows(hold_id) == []

    async def is_free() -> bool:
        return await seat_byte(served.rig.on, "A-1") == b"."

    await eventually(is_free, "the seat is given back")
    assert (await served.hold("A-1", "A-2", hold_id=hold_id, user=user)).status is Status.HOLD_RELEASED
    assert (await served.hold("A-2")).status is Status.DONE


async def test_a_rejected_sale_is_refused_also_when_it_is_repeated(served: Desk) -> None:
    held = await served.hold("A-1")
    assert held.hold_id is not None
    await served.rig.execute("UPDATE seat_holds SET status = 'cancelled'")

    for _ in range(2):
        reply = await served.backend.confirm_holds(served.rig.event, [held.hold_id], sale="sale-1", user_id=None)
        assert (reply.status, reply.outcomes, reply.seats) == (Status.HOLD_RELEASED, (Status.HOLD_RELEASED,), ())
    async with following(served.rig.dsn) as acks:
        # A front end that has just started knows it as well.
        fresh = DurableBackend(served.rig.on.backend, acks, timeout_s=PATIENT_S)
        reply = await fresh.confirm_holds(served.rig.event, [held.hold_id], sale="sale-1", user_id=None)
    assert reply.status is Status.HOLD_RELEASED


async def test_a_hold_that_cannot_be_applied_is_refused(served: Desk) -> None:
    holder = Holder(hold_id=uuid4(), user_id=uuid4(), cart="a\0b")

    reply = await served.backend.hold_seats(served.rig.event, holder, seats=pairs(served.rig.on, "A-1"))

    assert reply.status is Status.INVALID_REQUEST
    assert await served.rig.hold_rows(holder.hold_id) == []


async def test_more_rejections_than_a_notification_takes_all_reach_their_callers(desk: Desk) -> None:
    await desk.rig.execute("UPDATE zones SET capacity = 1 WHERE zone = 1")
    await desk.rig.redis.hset(desk.rig.on.keys.key("counts"), "1", pack_zone(500, 0))
    holders = [Holder(hold_id=uuid4(), user_id=uuid4()) for _ in range(130)]
    calls = [desk.backend.hold_seats(desk.rig.event, each, quantities=[(1, 1)]) for each in holders]
    tasks = [asyncio.ensure_future(call) for call in calls]

    async def decided() -> bool:
        return int(await desk.rig.redis.get(desk.rig.on.keys.key("seq"))) == 131

    await eventually(decided, "Redis has granted all")
    async with running(desk.rig.persister().run()):
        replies = await asyncio.gather(*tasks)

    statuses = [reply.status for reply in replies]
    assert statuses.count(Status.DONE) == 1
    assert statuses.count(Status.BLOCK_AT_CAPACITY) == 129


async def test_a_rejection_whose_notification_was_lost_is_found_by_asking(desk: Desk) -> None:
    await desk.rig.execute("UPDATE seats SET status = 'sold' WHERE seat_id = 'A-1'")
    async with desk.asking(desk.hold("A-1")) as call:
        await cut_off(desk)
        await desk.rig.drain()
        assert (await call).status is Status.SEAT_NOT_AVAILABLE


async def test_what_is_heard_before_the_rejections_are_known_is_not_believed(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        desk = Desk(rig, Acks())
        await rig.execute("UPDATE seats SET status = 'sold' WHERE seat_id = 'A-1'")
        async with desk.asking(desk.hold("A-1")) as call:
            # Nobody listens yet. The rejection is there, and Redis does not know of it.
            await rig.drain()
            async with (
                locked(rig, "rejections") as rejections,
                locked(rig, "shard_marks") as marks,
                running(follow_marks(rig.dsn, desk.acks, SHARDS)),
            ):
                await eventually(lambda: waits_for_table(rig), "the listener asks for marks")
                # Postgres delivers this as soon as that question is answered.
                await announce(rig, Committed(((rig.shard, 1, 3),)))
                await marks.execute("ROLLBACK")
                await eventually(lambda: waits_for_table(rig), "the listener asks for rejections")
                assert desk.acks.mark(rig.shard) == (0, 0)
                assert not call.done()
                await rejections.execute("ROLLBACK")
                assert (await call).status is Status.SEAT_NOT_AVAILABLE


@asynccontextmanager
async def locked(rig: Rig, table: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that keeps everybody from a table until it rolls back."""
    connection = await asyncpg.connect(rig.dsn)
    try:
        await connection.execute("BEGIN")
        await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield connection
    finally:
        await connection.close()


async def announce(rig: Rig, committed: Committed) -> None:
    """Notify as a commit does, and return when listeners have heard it."""
    heard = asyncio.Event()
    connection = await asyncpg.connect(rig.dsn)
    try:
        await connection.add_listener(MARKS_CHANNEL, lambda *_: heard.set())
        await execute(rig.dsn, "SELECT pg_notify($1, $2)", MARKS_CHANNEL, msgspec.json.encode(committed).decode())
        await heard.wait()
        # One more exchange with the server, in case this connection was the first to hear.
        await connection.fetchval("SELECT 1")
    finally:
        await connection.close()


async def test_a_hold_that_is_rejected_and_not_yet_given_back_is_no_success_to_a_front_end_that_starts(
    desk: Desk,
) -> None:
    hold_id, user = uuid4(), uuid4()
    await desk.hold("A-1", hold_id=hold_id, user=user, ack=Ack.REDIS)
    await desk.rig.execute(
        "INSERT INTO rejections (shard, epoch, seq, organization_id, event_id, hold_id, operation, reason) "
        "VALUES ($1, 1, 2, $2, $3, $4, 'hold', 'seat_not_available')",
        desk.rig.shard,
        desk.rig.event.organization_id,
        desk.rig.event.event_id,
        hold_id,
    )
    await desk.rig.execute("UPDATE shard_marks SET seq = 2 WHERE shard = $1", desk.rig.shard)

    async with following(desk.rig.dsn) as acks:
        repeat = await Desk(desk.rig, acks).hold("A-1", hold_id=hold_id, user=user)

    assert repeat.status is Status.SEAT_NOT_AVAILABLE


async def test_listeners_end_when_they_are_told_to(database_dsn: str) -> None:
    async with following(database_dsn):
        assert await is_listening(database_dsn)

    async def nobody() -> bool:
        return not await is_listening(database_dsn)

    await eventually(nobody, "nobody listens any more")


class Waiters:
    """Calls that wait for positions of one shard."""

    def __init__(self, acks: Acks) -> None:
        self.acks = acks
        self.tasks: dict[tuple[int, int], asyncio.Task[Status | None]] = {}

    async def start(self, *positions: tuple[int, int]) -> None:
        for epoch, seq in positions:
            waiting = self.acks.wait(Position(3, epoch, seq), PATIENT_S)
            self.tasks[epoch, seq] = asyncio.create_task(waiting)
        await asyncio.sleep(0)

    async def answered(self) -> set[tuple[int, int]]:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return {position for position, task in self.tasks.items() if task.done()}


async def test_waits_are_answered_by_position_in_whatever_order_they_came() -> None:
    acks = Acks()
    waiters = Waiters(acks)
    await waiters.start((1, 9), (1, 4), (1, 6), (1, 5))

    acks.advance(3, 1, 3)
    assert await waiters.answered() == set()
    acks.advance(3, 1, 5)
    assert await waiters.answered() == {(1, 4), (1, 5)}
    acks.advance(2, 1, 100)
    assert await waiters.answered() == {(1, 4), (1, 5)}
    # Older news than what is known changes nothing.
    acks.advance(3, 1, 4)
    await waiters.start((1, 2))
    assert await waiters.answered() == {(1, 2), (1, 4), (1, 5)}
    acks.advance(3, 1, 9)
    assert await waiters.answered() == set(waiters.tasks)
    assert [await task for task in waiters.tasks.values()] == [None] * 5


async def test_a_rejection_answers_its_own_position_only() -> None:
    acks = Acks()
    waiters = Waiters(acks)
    await waiters.start((1, 4), (1, 5), (1, 6))

    acks.reject(3, 1, 5, Status.SEAT_NOT_AVAILABLE)
    acks.advance(3, 1, 6)

    assert [await task for task in waiters.tasks.values()] == [None, Status.SEAT_NOT_AVAILABLE, None]


async def test_what_an_epoch_left_behind_is_unknown_when_the_next_one_begins() -> None:
    acks = Acks()
    acks.advance(3, 1, 5)
    waiters = Waiters(acks)
    await waiters.start((1, 6), (2, 1))

    acks.advance(3, 2, 0)
    assert await waiters.answered() == {(1, 6)}
    acks.advance(3, 2, 1)
    await waiters.start((1, 5), (1, 7))

    results = await asyncio.gather(*waiters.tasks.values(), return_exceptions=True)
    assert [type(result) for result in results] == [Uncommitted, type(None), type(None), Uncommitted]


async def test_a_caller_that_gave_up_is_in_nobodys_way() -> None:
    acks = Acks()
    waiters = Waiters(acks)
    await waiters.start((1, 1), (1, 2))
    waiters.tasks[1, 1].cancel()
    await asyncio.gather(waiters.tasks[1, 1], return_exceptions=True)

    acks.advance(3, 1, 2)

    assert await waiters.tasks[1, 2] is None
    assert acks.oldest_waiting == {}
