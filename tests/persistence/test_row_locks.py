"""What is particular to row locks: the fence, numbers and notifications, foreign locks, Postgres in trouble."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from conformance.halls import Hall, held, hold, letters, row_lock_hall, seats, shard, somebody, unchanged

from holdfast.engine.backend import HoldReply
from holdfast.engine.errors import Overloaded, ScriptFault, Unavailable
from holdfast.engine.layout import compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from holdfast.persistence import row_lock_group
from holdfast.persistence.apply import Rejection
from holdfast.persistence.fence import SHARD_LOCKS
from holdfast.persistence.operations import Operation
from holdfast.persistence.pool import Connection, open_pool
from holdfast.persistence.row_lock_backend import RowLockBackend
from support.engine import SHARDS, document
from support.persisting import eventually, following
from support.row_locks import DB_EPOCH

WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
async def hall(database_dsn: str) -> AsyncIterator[Hall]:
    """The usual event, served by Postgres."""
    async with row_lock_hall(database_dsn) as opened:
        yield opened


@pytest.fixture
async def stranger(database_dsn: str) -> AsyncIterator[Connection]:
    """Another session of the same database."""
    connection = await asyncpg.connect(database_dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def locking_seat(stranger: Connection, hall: Hall, seat_id: str) -> AsyncIterator[None]:
    """Somebody else's transaction that has locked a seat and is not done yet."""
    async with stranger.transaction():
        await stranger.fetch(
            "SELECT FROM seats WHERE event_id = $1 AND seat_id = $2 FOR UPDATE", hall.event.event_id, seat_id
        )
        yield


async def lock_mark(stranger: Connection, hall: Hall) -> None:
    await stranger.fetch("SELECT FROM shard_marks WHERE shard = $1 FOR UPDATE", shard(hall))


async def test_a_hold_that_waits_at_the_fence_finds_the_new_mode(hall: Hall, stranger: Connection) -> None:
    # Given somebody who is changing the mode of the shard,
    transition = stranger.transaction()
    await transition.start()
    await stranger.execute("SELECT pg_advisory_xact_lock($1, $2)", SHARD_LOCKS, shard(hall))

    # when a hold is on its way, and the change is committed before it gets through,
    reply: asyncio.Task[HoldReply] = asyncio.create_task(hold(hall, "A-1"))
    await eventually(lambda: stranger.fetchval(WAITING), "the hold waits at the fence")
    await stranger.execute("UPDATE control SET mode = 'recovering', epoch = epoch + 1 WHERE shard = $1", shard(hall))
    await transition.commit()

    # then it is refused, and nothing is held.
    assert (await reply).status is Status.FENCED
    assert await stranger.fetchval("SELECT count(*) FROM seat_holds") == 0


async def test_writers_of_a_shard_wait_for_each_other_and_not_for_what_they_saw(
    hall: Hall, stranger: Connection
) -> None:
    # Given a writer that has the shard's mark and sells the last place the hall has,
    transaction = stranger.transaction()
    await transaction.start()
    await lock_mark(stranger, hall)

    # when a hold has looked and waits for its turn,
    reply: asyncio.Task[HoldReply] = asyncio.create_task(hold(hall, places=1))
    await eventually(lambda: stranger.fetchval(WAITING), "the hold waits for the mark")
    await stranger.execute("UPDATE zones SET sold = capacity WHERE zone = 1")
    await transaction.commit()

    # then it decides on what there is now.
    assert (await reply).status is Status.BLOCK_AT_CAPACITY
    await stranger.execute("UPDATE zones SET sold = 0 WHERE zone = 1")


async def test_a_seat_that_is_locked_is_taken_at_once(hall: Hall, stranger: Connection) -> None:
    async with locking_seat(stranger, hall, "A-1"):
        async with unchanged(hall):
            refused = await hold(hall, "A-2", "A-1")
        assert (refused.status, list(refused.seats)) == (Status.SEAT_HELD_BY_ANOTHER_USER, seats(hall, "A-1"))

        # The best seats are those that nobody else is about to change,
        best = await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=2)
        assert list(best.seats) == seats(hall, "A-2", "A-3")

    # and the seat can be had once it was let go.
    assert (await hold(hall, "A-1")).status is Status.DONE


async def test_an_overdue_hold_on_a_locked_seat_stays(hall: Hall, stranger: Connection) -> None:
    overdue = await held(hall, "A-1", "A-2")
    await hall.lapse(overdue)

    async with locking_seat(stranger, hall, "A-1"), unchanged(hall):
        assert (await hold(hall, "A-2")).status is Status.SEAT_HELD_BY_ANOTHER_USER
        reaped = await hall.backend.expire_holds(hall.event.organization_id, hall.event.event_id, limit=10)
        assert (reaped.status, reaped.expired) == (Status.DONE, 0)


async def test_what_cannot_be_decided_beside_a_foreign_lock_is_busy(hall: Hall, stranger: Connection) -> None:
    hold_id = await held(hall, "A-1")

    async with locking_seat(stranger, hall, "A-1"):
        released, other = await asyncio.gather(
            hall.backend.release_holds(hall.event, [hold_id], user_id=None, reason="admin_override"),
            hold(hall, "A-2"),
            return_exceptions=True,
        )
        assert isinstance(released, Overloaded)
        # A call that came together with it is served.
        assert isinstance(other, HoldReply)
        assert other.status is Status.DONE

    released = await hall.backend.release_holds(hall.event, [hold_id], user_id=None, reason="admin_override")
    assert released.status is Status.DONE


async def test_a_committed_hold_is_announced_like_one_of_the_log(
    hall: Hall, stranger: Connection, database_dsn: str
) -> None:
    async with following(database_dsn) as acks:
        reply = await hold(hall, "A-1", "A-2", places=2)

        # Whoever waits for the position is answered, as by the persister.
        assert (reply.position.shard, reply.position.epoch) == (shard(hall), DB_EPOCH)
        assert await acks.wait(reply.position, timeout_s=10) is None
    audited = await stranger.fetchval("SELECT changes FROM audit_log WHERE action = 'seat_reserved'")
    assert msgspec.json.decode(audited)["seat_ids"] == ["A-1", "A-2"]
    told = await stranger.fetchval("SELECT payload FROM outbox WHERE kind = 'SeatReserved'")
    assert msgspec.json.decode(told)["hold_id"] == str(reply.hold_id)
    mark = await stranger.fetchval("SELECT seq FROM shard_marks WHERE shard = $1 AND epoch = $2", shard(hall), DB_EPOCH)
    assert mark == reply.position.seq


async def test_seats_left_alone_are_told_to_the_audit(database_dsn: str, stranger: Connection) -> None:
    policy = Policy(rate_limit_seats=0, orphan_audit_enabled=True)
    async with row_lock_hall(database_dsn, document(rows=1, per_row=8, policy=policy)) as hall:
        await held(hall, "A-2")
        await hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=5)

    told = await stranger.fetch("SELECT changes FROM audit_log WHERE action = 'orphans_left' ORDER BY id")
    assert [msgspec.json.decode(row["changes"])["seat_ids"] for row in told] == [["A-1"], ["A-8"]]


async def test_numbers_follow_each_other_whoever_asks(hall: Hall) -> None:
    replies = await asyncio.gather(
        *(
            hall.front_ends[number % 3].hold_seats(hall.event, somebody(), seats=[seat])
            for number, seat in enumerate(hall.event.seats.values())
        )
    )

    # The event's opening had the first number.
    assert sorted(reply.position.seq for reply in replies) == list(range(2, 32))


async def test_an_id_of_another_event_spoils_only_its_own_call(hall: Hall) -> None:
    elsewhere = compile_event(uuid4(), document())
    await hall.save(elsewhere)
    await hall.backend.open_event(elsewhere)
    used = somebody()
    first = await hall.backend.hold_seats(elsewhere, used, seats=[elsewhere.seats["A-1"]])
    assert first.status is Status.DONE

    # When the id comes again for this event, together with other calls,
    wishes = zip([somebody(), used, somebody()], seats(hall, "A-1", "A-2", "A-3"), strict=True)
    replies = await asyncio.gather(
        *(hall.backend.hold_seats(hall.event, holder, seats=[seat]) for holder, seat in wishes)
    )

    # then the others have what they asked for.
    assert [reply.status for reply in replies] == [Status.DONE, Status.HOLD_ID_REUSED, Status.DONE]
    assert await letters(hall, "A-1", "A-2", "A-3") == "h.h"


async def test_a_refusal_stands_when_the_others_are_decided_again(
    hall: Hall, stranger: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given calls that come together: one for a taken seat, and one that collides when it is written,
    elsewhere = compile_event(uuid4(), document())
    await hall.save(elsewhere)
    await hall.backend.open_event(elsewhere)
    used = somebody()
    await hall.backend.hold_seats(elsewhere, used, seats=[elsewhere.seats["A-1"]])
    taken = await held(hall, "A-1")
    written = row_lock_group.apply_operations

    async def collide(connection: Connection, operations: Sequence[Operation], *, optimistic: bool) -> list[Rejection]:
        # and the taken seat, which comes free before that,
        if optimistic:
            await stranger.execute("UPDATE seat_holds SET status = 'cancelled' WHERE hold_id = $1", taken)
            await stranger.execute(
                "UPDATE seats SET status = 'available', seat_hold_id = NULL WHERE seat_hold_id = $1", taken
            )
            await stranger.execute("UPDATE zones SET held = 0 WHERE event_id = $1", hall.event.event_id)
        return await written(connection, operations, optimistic=optimistic)

    monkeypatch.setattr(row_lock_group, "apply_operations", collide)
    refused, reused = await asyncio.gather(
        hold(hall, "A-1"), hall.backend.hold_seats(hall.event, used, seats=seats(hall, "A-2"))
    )

    # then the one that was refused is not decided again.
    assert (refused.status, reused.status) == (Status.SEAT_HELD_BY_ANOTHER_USER, Status.HOLD_ID_REUSED)
    assert await letters(hall, "A-1", "A-2") == ".."


async def test_a_row_that_cannot_be_understood_is_one_callers_trouble(hall: Hall, stranger: Connection) -> None:
    # Given a seat that names a hold which does not exist,
    hold_id = await held(hall, "A-1")
    await stranger.execute("UPDATE seats SET seat_hold_id = $2 WHERE seat_hold_id = $1", hold_id, uuid4())

    broken, other = await asyncio.gather(hold(hall, "A-1"), hold(hall, "A-2"), return_exceptions=True)

    assert isinstance(broken, ScriptFault)
    assert isinstance(other, HoldReply)
    assert other.status is Status.DONE
    await stranger.execute("UPDATE seats SET seat_hold_id = $1 WHERE seat_id = 'A-1'", hold_id)


async def test_text_that_postgres_cannot_keep_is_refused(hall: Hall) -> None:
    async with unchanged(hall):
        assert (await hold(hall, "A-1", cart="a\0b")).status is Status.INVALID_REQUEST
        assert (await hold(hall, "A-1", meta=b"{")).status is Status.INVALID_REQUEST


async def test_an_event_that_is_not_saved_cannot_be_opened(hall: Hall) -> None:
    unsaved = compile_event(uuid4(), document())
    other = compile_event(hall.event.organization_id, document(floor=10))

    async with unchanged(hall):
        assert (await hall.backend.open_event(unsaved)).status is Status.LOAD_INCOMPLETE
    await hall.save(other)
    larger = compile_event(
        other.organization_id,
        msgspec.structs.replace(
            other.document,
            zones=(*other.document.zones[:1], msgspec.structs.replace(other.document.zones[1], capacity=9)),
        ),
    )
    assert (await hall.backend.open_event(larger)).status is Status.LOAD_INCOMPLETE
    assert (await hall.backend.open_event(other)).status is Status.DONE


async def test_a_hold_of_an_earlier_epoch_is_known_and_needs_no_waiting(hall: Hall, stranger: Connection) -> None:
    user = uuid4()
    hold_id = await held(hall, "A-1", user=user)
    await stranger.execute("UPDATE control SET epoch = epoch + 1")

    again = await hold(hall, "A-1", user=user, hold_id=hold_id)
    assert (again.status, again.position.epoch, again.position.seq) == (Status.REPEATED, DB_EPOCH + 1, 0)
    longer = await hall.backend.extend_holds(
        hall.event, [hold_id], user_id=user, key="key-1", extension_ms=60_000, total_ms=3_600_000
    )
    assert (longer.status, longer.position.epoch, longer.position.seq) == (Status.DONE, DB_EPOCH + 1, 1)


async def test_a_call_does_not_wait_longer_than_a_statement_may(
    hall: Hall, stranger: Connection, database_dsn: str
) -> None:
    async with open_pool(database_dsn, name="test", statement_timeout_ms=100) as pool, stranger.transaction():
        backend = RowLockBackend(pool, shards=SHARDS)
        await lock_mark(stranger, hall)

        with pytest.raises(Overloaded):
            await backend.hold_seats(hall.event, somebody(), seats=seats(hall, "A-1"))


async def test_a_session_that_ends_before_the_commit_has_written_nothing(hall: Hall, stranger: Connection) -> None:
    async with stranger.transaction():
        await lock_mark(stranger, hall)
        reply: asyncio.Task[HoldReply] = asyncio.create_task(hold(hall, "A-1"))
        pid = await eventually(lambda: stranger.fetchval(WAITING), "the hold waits for the mark")
        await stranger.execute("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(Unavailable):
            await reply

    assert await letters(hall, "A-1") == "."
    assert (await hold(hall, "A-1")).status is Status.DONE


async def test_a_caller_who_goes_away_takes_nobody_along(hall: Hall, stranger: Connection) -> None:
    # Given two calls that wait for the same commit,
    async with stranger.transaction():
        await lock_mark(stranger, hall)
        gone = asyncio.create_task(hold(hall, "A-1"))
        stays = asyncio.create_task(hold(hall, "A-2"))
        await eventually(lambda: stranger.fetchval(WAITING), "the holds wait for the mark")

        # when one caller does not wait any longer,
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone

    # then both were decided all the same.
    assert (await stays).status is Status.DONE
    assert await letters(hall, "A-1", "A-2") == "hh"


async def test_free_seats_are_listed_piece_by_piece(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.persistence.row_lock_group.LISTED_SEATS", 3)
    async with row_lock_hall(database_dsn, document(rows=3, per_row=5)) as hall:
        await held(hall, "A-2", "B-3")

        # Runs that begin in one piece and end in the next, several in one transaction, are found in order.
        replies = await asyncio.gather(
            *(hall.backend.allocate_seats(hall.event, somebody(), zones=[0], count=count) for count in (3, 4, 2, 2, 2))
        )

    found = [[hall.event.seat_at[seat.value].seat_id for seat in reply.seats] for reply in replies]
    assert found == [
        ["A-3", "A-4", "A-5"],
        ["C-1", "C-2", "C-3", "C-4"],
        ["B-1", "B-2"],
        ["B-4", "B-5"],
        ["A-1", "C-5"],
    ]
