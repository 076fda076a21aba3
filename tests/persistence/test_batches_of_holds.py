"""A batch of nothing but holds, which is one call: what it leaves, and that it leaves nothing where it cannot be."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from redis.asyncio import Redis

from holdfast.engine.backend import Holder
from holdfast.engine.policy import Policy
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.persistence.apply import apply_operations, columns, hold_columns
from holdfast.persistence.batches import Batch, gather
from holdfast.persistence.fence import SHARD_LOCKS
from holdfast.persistence.log_reading import read_logs
from holdfast.persistence.operations import Hold
from holdfast.persistence.persister import MARKS_CHANNEL, OUTBOX_CHANNEL, Committed
from holdfast.persistence.sql import query
from support.engine import document
from support.persisting import CALLER, Rig, append, eventually, log_keys, rigged, running
from support.scripts import allocate, held, pairs, places_held, release

META = CALLER.meta()

# What differs between two ways of writing the same: numbers that are drawn, and when it was written.
DRAWN = {("audit_log", "id"), ("outbox", "id"), ("outbox", "created_at")}


@pytest.fixture
async def rig(redis_url: str, database_dsn: str) -> AsyncIterator[Rig]:
    async with rigged(redis_url, database_dsn) as opened:
        await opened.drain()
        yield opened


async def fail(*_: Any, **__: Any) -> None:
    raise AssertionError("a batch of holds was not one call")


async def mixed_holds(rig: Rig) -> None:
    """Holds of seats and places together, of seats alone, and of places alone."""
    who = Holder(hold_id=uuid4(), user_id=uuid4(), meta=META, cart="cart", fingerprint="print", address="home")
    reply = await rig.on.backend.hold_seats(rig.event, who, seats=pairs(rig.on, "A-1", "A-2"), quantities=[(1, 3)])
    assert reply.status is Status.DONE
    await held(rig.on, "B-1", meta=META)
    await places_held(rig.on, 4)


async def call(rig: Rig, *, epoch: int = FIRST_EPOCH, ahead: int = 0) -> None:
    """Write what waits in the log by the one call, as if its mark were so far ahead of where it is."""
    mark = (await rig.marks())[rig.shard]
    holds = [operation for operation in await rig.operations(mark) if isinstance(operation, Hold)]
    last = holds[-1].entry
    move = (rig.shard, epoch, mark + ahead, last.seq, last.at_ms)
    await rig.execute(
        query("persist_holds"),
        *(SHARD_LOCKS, *columns([move]), MARKS_CHANNEL, "[[]]", OUTBOX_CHANNEL, *hold_columns(holds)),
    )


async def everything(rig: Rig) -> Any:
    return await rig.contents(), await rig.marks()


async def test_it_leaves_what_is_left_when_collisions_are_looked_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = (await rig.marks())[rig.shard]
    await mixed_holds(rig)
    operations = await rig.operations(mark)
    expected: dict[str, list[dict[str, Any]]] = {}
    async with rig.pool.acquire() as connection:
        careful = connection.transaction()
        await careful.start()
        assert await apply_operations(connection, operations) == []
        for table in await rig.contents():
            expected[table] = rows(table, await connection.fetch(f"SELECT * FROM {table}"))  # noqa: S608
        await careful.rollback()

    monkeypatch.setattr("holdfast.persistence.persister.apply_operations", fail)
    assert await rig.drain() == 3

    assert {table: rows(table, found) for table, found in (await rig.contents()).items()} == expected
    assert len(expected["audit_log"]) == 1 + 3
    assert len(expected["outbox"]) == 3
    assert (await rig.marks())[rig.shard] == mark + 3


def rows(table: str, found: Any) -> list[Any]:
    """Rows without what is drawn, in an order that does not depend on it."""
    kept = [{name: value for name, value in dict(row).items() if (table, name) not in DRAWN} for row in found]
    return sorted(kept, key=str)


async def test_seats_left_alone_are_told_to_the_audit(redis_url: str, database_dsn: str) -> None:
    policy = Policy(rate_limit_seats=0, orphan_audit_enabled=True)
    async with rigged(redis_url, database_dsn, document(rows=1, per_row=8, policy=policy)) as rig:
        await rig.drain()
        hold_id = await held(rig.on, "A-2", meta=META)
        chosen = await allocate(rig.on, 5)

        await rig.drain()

        told = [(row["entity_id"], row["changes"]["seat_ids"]) for row in await rig.audit("orphans_left")]
        assert told == [(str(hold_id), ["A-1"]), (str(chosen.hold_id), ["A-8"])]


@pytest.mark.parametrize("ahead", [1, -1])
async def test_where_the_mark_has_moved_nothing_is_written(rig: Rig, ahead: int) -> None:
    await mixed_holds(rig)
    before = await everything(rig)

    with pytest.raises(asyncpg.PostgresError) as caught:
        await call(rig, ahead=ahead)

    assert caught.value.sqlstate == "HF001"
    assert await everything(rig) == before


@pytest.mark.parametrize("fence", ["mode = 'db'", "mode = 'recovering'", "epoch = epoch + 1"])
async def test_where_the_shard_is_served_otherwise_nothing_is_written(rig: Rig, fence: str) -> None:
    await mixed_holds(rig)
    await rig.execute(f"UPDATE control SET {fence}")  # noqa: S608
    before = await everything(rig)

    with pytest.raises(asyncpg.PostgresError) as caught:
        await call(rig)

    assert caught.value.sqlstate == "HF001"
    assert await everything(rig) == before


@pytest.mark.parametrize(
    "obstacle",
    [
        "UPDATE seats SET status = 'blocked' WHERE seat_id = 'B-1'",
        "UPDATE seats SET status = 'held' WHERE seat_id = 'A-2'",
        "UPDATE zones SET capacity = 2 WHERE zone = 0",
        "UPDATE zones SET capacity = 6 WHERE zone = 1",
        "UPDATE zones SET blocked = 44 WHERE zone = 1",
        "DELETE FROM seats WHERE seat_id = 'B-1'",
    ],
)
async def test_where_a_seat_or_a_zone_has_no_room_nothing_is_written(rig: Rig, obstacle: str) -> None:
    await mixed_holds(rig)
    await rig.execute(obstacle)
    before = await everything(rig)

    with pytest.raises(asyncpg.PostgresError) as caught:
        await call(rig)

    assert caught.value.sqlstate == "HF002"
    assert await everything(rig) == before


async def test_where_a_unique_index_objects_nothing_is_written(rig: Rig) -> None:
    await mixed_holds(rig)
    await call(rig)
    await rig.execute("UPDATE seats SET status = 'available', seat_hold_id = NULL")
    await rig.execute("UPDATE shard_marks SET seq = seq - 3 WHERE shard = $1", rig.shard)
    before = await everything(rig)

    with pytest.raises(asyncpg.UniqueViolationError):
        await call(rig)

    assert await everything(rig) == before


async def test_a_collision_is_sorted_out_by_the_careful_path(rig: Rig) -> None:
    await mixed_holds(rig)
    await rig.execute("UPDATE zones SET capacity = 6 WHERE zone = 1")

    await rig.drain()

    assert await rig.value("SELECT count(*) FROM rejections") == 1
    assert await rig.value("SELECT count(DISTINCT hold_id) FROM seat_holds") == 2


class TestHalves:
    async def test_they_are_all_of_it_in_its_order(self, rig: Rig) -> None:
        other = await rig.open_other(same_shard=False)
        await append(rig, {b"op": b"?", b"head": b"?"})
        await mixed_holds(rig)
        slices = []
        for event in (rig.event, other):
            keys = log_keys(event)
            slices.append(gather(keys.shard, FIRST_EPOCH, 0, await rig.redis.xrange(keys.key("log"))))
        whole = Batch(tuple(slices))

        first, second = whole.halves()

        assert first.length + second.length == whole.length == 6
        assert [(each.shard, each.first_seq, each.last_seq) for each in first.slices] == [
            (slices[0].shard, 0, 3),
            (slices[1].shard, 0, 1),
        ]
        assert [(each.shard, each.first_seq, each.last_seq) for each in second.slices] == [(slices[0].shard, 3, 5)]
        assert (first.ends | second.ends) == whole.ends
        assert sorted(each.entry.seq for each in (*first.operations, *second.operations)) == [1, 1, 3, 4, 5]
        assert [letter.seq for each in first.slices for letter in each.dead_letters] == [2]
        assert second.separate_holds == second.operations
        assert Batch((slices[1],)).halves() == [Batch((slices[1],))]

    async def test_a_burst_is_committed_in_halves_and_what_is_as_long_as_before_at_once(
        self, rig: Rig, database_dsn: str
    ) -> None:
        told: list[int] = []
        connection = await asyncpg.connect(database_dsn)
        try:
            await connection.add_listener(
                MARKS_CHANNEL,
                lambda *heard: told.append(msgspec.json.decode(heard[-1], type=Committed).marks[0][2]),
            )
            await asyncio.gather(*(held(rig.on, f"{row}-{seat}") for row in "AB" for seat in range(1, 11)))

            async with running(rig.persister().run()):
                await eventually(lambda: reached(told, 21), "the burst is committed")
                assert told == [11, 21]
                hold_ids = await rig.fetch("SELECT hold_id FROM seat_holds WHERE seq > 11")
                await release(rig.on, *(row["hold_id"] for row in hold_ids))
                await eventually(lambda: reached(told, 22), "what came after it is committed")
        finally:
            await connection.close()

        assert await rig.value("SELECT count(*) FROM seat_holds") == 20


async def reached(told: list[int], mark: int) -> bool:
    return mark in told


class TestReading:
    @pytest.mark.parametrize("protocol", [2, 3])
    async def test_it_reads_what_the_client_library_reads(self, rig: Rig, redis_url: str, protocol: int) -> None:
        await rig.open_other(same_shard=False)
        await mixed_holds(rig)
        places = {log_keys(rig.event).key("log"): f"{FIRST_EPOCH}-1", b"nothing": "0"}
        async with Redis.from_url(redis_url, protocol=protocol) as redis:
            expected: Any = await rig.redis.xread(dict(places), count=2)

            found = await read_logs(redis, places, count=2, block_ms=1)
            none = await read_logs(redis, {b"nothing": "0"}, count=2, block_ms=1)

        assert found == dict(expected)
        assert len(found[log_keys(rig.event).key("log")]) == 2
        assert none == {}

    async def test_a_reader_that_is_cancelled_leaves_no_answer_behind(self, rig: Rig, redis_url: str) -> None:
        async with Redis.from_url(redis_url, max_connections=1) as redis:
            reading = asyncio.create_task(read_logs(redis, {b"cancelled": "0"}, count=1, block_ms=10_000))
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await rig.redis.xadd("cancelled", {"one": "two"}, id="1-1")

            assert await redis.get("nothing") is None
            assert await read_logs(redis, {b"cancelled": "0"}, count=1, block_ms=1) == {
                b"cancelled": [(b"1-1", {b"one": b"two"})]
            }
