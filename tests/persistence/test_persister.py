"""The persister: whole batches, one winner for each, gaps, poison, trimming, and the fence."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.backend import Holder
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.persistence.persister import LostRace
from holdfast.persistence.sql import query
from support.engine import SHARDS
from support.persisting import Rig, append, eventually, log_keys, rigged, running
from support.scripts import held, places_held, sell

LONG_S = 3600.0


@pytest.fixture
async def rig(redis_url: str, database_dsn: str) -> AsyncIterator[Rig]:
    async with rigged(redis_url, database_dsn) as opened:
        yield opened


async def hold(rig: Rig, event: CompiledEvent, seat: str, **holder: Any) -> Holder:
    """Hold a seat of any event; must succeed."""
    who = Holder(hold_id=uuid4(), user_id=uuid4(), **holder)
    reply = await rig.on.backend.hold_seats(event, who, seats=[event.seats[seat]])
    assert reply.status is Status.DONE
    return who


async def redis_mark(rig: Rig) -> int:
    return int(await rig.redis.get(rig.on.keys.key("mark")) or 0)


def head(rig: Rig) -> bytes:
    return struct.pack(">Q", 1_000) + rig.on.keys.scope


def entry(rig: Rig, **changes: bytes) -> dict[bytes, bytes]:
    """An entry as a script writes it, but for what is given."""
    fields = {b"op": b"close", b"head": head(rig), b"holds": b"", b"body": b"", b"meta": b""}
    return fields | {name.encode(): value for name, value in changes.items()}


def complaints(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_what_waits_in_several_shards_is_one_transaction(rig: Rig) -> None:
    other = await rig.open_other(same_shard=False)
    for number in range(1, 6):
        await hold(rig, rig.event, f"A-{number}")
        await hold(rig, other, f"A-{number}")

    assert await rig.persister().step(block_ms=1) == 12

    marks = await rig.marks()
    assert (marks[rig.shard], marks[log_keys(other).shard], sum(marks.values())) == (6, 6, 12)
    assert await rig.value("SELECT count(DISTINCT xmin::text) FROM seat_holds") == 1
    assert await rig.value("SELECT count(*) FROM seat_holds") == 10


async def test_a_batch_goes_on_where_the_last_one_ended(rig: Rig) -> None:
    persister = rig.persister(batch=2)
    for number in range(1, 5):
        await held(rig.on, f"A-{number}")

    assert [await persister.step(block_ms=1) for _ in range(4)] == [2, 2, 1, 0]
    assert (await rig.marks())[rig.shard] == 5
    assert await redis_mark(rig) == 5


async def test_a_persister_that_starts_goes_on_at_the_mark_in_postgres(rig: Rig) -> None:
    await held(rig.on, "A-1")
    await rig.drain()
    await held(rig.on, "A-2")

    assert await rig.drain(rig.persister()) == 1
    assert await rig.value("SELECT count(*) FROM audit_log WHERE action = 'seat_reserved'") == 2


async def test_of_two_persisters_with_the_same_batch_one_wins(rig: Rig) -> None:
    await held(rig.on, "A-1")
    first, second = rig.persister(), rig.persister()
    await rig.drain(first)
    await rig.drain(second)
    await held(rig.on, "A-2")

    assert await first.step(block_ms=1) == 1
    with pytest.raises(LostRace):
        await second.step(block_ms=1)

    assert await rig.value("SELECT count(*) FROM seat_holds") == 2
    assert (await rig.marks())[rig.shard] == 3


async def test_persisters_side_by_side_apply_everything_once(rig: Rig) -> None:
    events = [rig.event]
    while {log_keys(event).shard for event in events} != set(range(SHARDS)):
        events.append(await rig.open_other(same_shard=False))
    seats = [(event, f"{row}-{number}") for row in "ABC" for number in range(1, 11) for event in events]

    async with running(*(rig.persister(batch=3, retention=0).run() for _ in range(3))):
        await asyncio.gather(*(hold(rig, event, seat) for event, seat in seats))
        total = len(seats) + len(events)

        async def persisted() -> bool:
            return sum((await rig.marks()).values()) == total

        await eventually(persisted, "everything is persisted")

    assert await rig.value("SELECT count(*) FROM seat_holds WHERE status = 'active'") == len(seats)
    assert await rig.value("SELECT count(*) FROM audit_log WHERE action = 'seat_reserved'") == len(seats)
    assert await rig.value("SELECT count(*) FROM outbox") == len(seats)
    assert await rig.value("SELECT sum(held) FROM zones") == len(seats)
    assert await rig.value("SELECT sum(version - 1) FROM seats") == len(seats)


async def test_a_gap_halts_its_shard_after_what_is_before_it(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    other = await rig.open_other(same_shard=False)
    before, lost, after = [await held(rig.on, seat) for seat in ("A-1", "A-2", "A-3")]
    await rig.redis.xdel(rig.on.keys.key("log"), f"{FIRST_EPOCH}-3")
    persister = rig.persister(refresh_s=0)

    await rig.drain(persister)
    elsewhere = await hold(rig, other, "A-1")
    await held(rig.on, "A-4")
    await rig.drain(persister)

    text = "after entry 1-2 its log goes on with 1-4"
    assert persister.halted == {rig.shard: text}
    assert complaints(caplog, logging.CRITICAL) == [f"shard {rig.shard} is halted: {text}"]
    assert await rig.value(query("list_halts")) == rig.shard
    assert (await rig.marks())[rig.shard] == 2
    assert [bool(await rig.hold_rows(hold_id)) for hold_id in (before, lost, after)] == [True, False, False]
    assert await rig.hold_rows(elsewhere.hold_id)


async def test_a_shard_goes_on_once_its_mark_is_moved_over_the_gap(rig: Rig) -> None:
    await held(rig.on, "A-1")
    await rig.redis.xdel(rig.on.keys.key("log"), f"{FIRST_EPOCH}-2")
    after = await held(rig.on, "A-2")
    persister = rig.persister(refresh_s=0)
    await rig.drain(persister)
    assert persister.halted

    await rig.execute("UPDATE shard_marks SET seq = 2 WHERE shard = $1", rig.shard)
    await rig.drain(persister)

    assert persister.halted == {}
    assert await rig.value(query("list_halts")) is None
    assert await rig.hold_rows(after)


async def test_what_another_persister_has_trimmed_is_no_gap(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    slow, fast = rig.persister(refresh_s=LONG_S), rig.persister(retention=0)
    await rig.drain(slow)
    await held(rig.on, "A-1")
    await held(rig.on, "A-2")
    await rig.drain(fast)
    # Trimming by whole nodes of the stream would leave these few entries alone.
    await rig.redis.xtrim(rig.on.keys.key("log"), minid=f"{FIRST_EPOCH}-3", approximate=False)
    await held(rig.on, "A-3")

    with pytest.raises(LostRace):
        await slow.step(block_ms=1)

    assert slow.halted == {}
    assert complaints(caplog, logging.CRITICAL) == []


@pytest.mark.parametrize(
    "fields",
    [
        {b"what": b"\xff\x00"},
        {b"op": b"hold", b"head": b"short", b"holds": b"", b"body": b"", b"meta": b""},
    ],
)
async def test_an_entry_that_cannot_be_read_is_a_dead_letter(
    rig: Rig, fields: dict[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    before = await held(rig.on, "A-1")
    number = await append(rig, fields)
    after = await held(rig.on, "A-2")

    await rig.drain()

    (letter,) = await rig.fetch("SELECT * FROM dead_letters")
    assert (letter["shard"], letter["epoch"], letter["seq"]) == (rig.shard, FIRST_EPOCH, number)
    kept = msgspec.json.decode(letter["fields"], type=dict[str, bytes])
    assert kept == {name.decode(): value for name, value in fields.items()}
    assert letter["error"]
    assert await rig.hold_rows(before)
    assert await rig.hold_rows(after)
    assert (await rig.marks())[rig.shard] == number + 1
    assert complaints(caplog, logging.CRITICAL) == ["1 log entries could not be read and are kept as dead letters"]


@pytest.mark.parametrize("where", ["constraint", "text", "time"])
async def test_an_entry_that_postgres_cannot_take_is_a_dead_letter_and_holds_nothing_up(rig: Rig, where: str) -> None:
    before = await held(rig.on, "A-1")
    if where == "constraint":
        number = await append(rig, entry(rig, op=b"state", body=b"version haunted 0 0\n"))
    elif where == "text":
        number = await append(rig, entry(rig, meta=b'["\\u0000", "", ""]'))
    else:
        number = await append(rig, entry(rig, head=struct.pack(">Q", 2**63) + rig.on.keys.scope))
    after = await held(rig.on, "A-2")

    await rig.drain()

    (letter,) = await rig.fetch("SELECT * FROM dead_letters")
    assert (letter["seq"], bool(letter["error"])) == (number, True)
    assert await rig.hold_rows(before)
    assert await rig.hold_rows(after)
    assert await rig.value("SELECT state FROM events") == "live"
    assert await rig.value("SELECT count(*) FROM audit_log WHERE action = 'seat_reserved'") == 2


async def test_a_hold_that_postgres_cannot_take_is_rejected_and_given_back(rig: Rig) -> None:
    hold_id = await held(rig.on, "A-1", cart="a\0b")
    other = await held(rig.on, "A-2")

    await rig.drain()

    (rejection,) = await rig.fetch("SELECT * FROM rejections")
    assert (rejection["hold_id"], rejection["reason"]) == (hold_id, "invalid_request")
    assert rejection["compensated_at"] is not None
    assert await rig.value("SELECT seq FROM dead_letters") == rejection["seq"]
    assert await rig.hold_rows(other)
    assert await rig.redis.getrange(rig.on.keys.key("map"), 0, 1) == b".h"


async def test_a_refusal_that_a_dead_persister_left_is_given_back_by_the_next(rig: Rig) -> None:
    await rig.execute("UPDATE seats SET status = 'sold' WHERE seat_id = 'A-1'")
    hold_id = await held(rig.on, "A-1")
    await rig.drain()
    await rig.execute("UPDATE rejections SET compensated_at = NULL")
    # As if it had died before the release: the hold lives on.
    again = await held(rig.on, "A-1")
    await rig.execute("UPDATE rejections SET hold_id = $1", again)

    await rig.drain()

    assert await rig.value("SELECT count(*) FROM rejections WHERE compensated_at IS NULL") == 0
    assert await rig.redis.getrange(rig.on.keys.key("map"), 0, 0) == b"."
    assert await rig.hold_rows(hold_id) == []


async def test_a_refused_sale_is_left_for_the_operator(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    hold_id = await held(rig.on, "A-1")
    await rig.drain()
    await rig.execute("DELETE FROM seat_holds")
    await sell(rig.on, hold_id)

    await rig.drain()

    assert complaints(caplog, logging.CRITICAL) == [
        f"sale of hold {hold_id} refused: hold_not_found; reconcile its event"
    ]
    (rejection,) = await rig.fetch("SELECT * FROM rejections")
    assert (rejection["operation"], rejection["compensated_at"]) == ("sell", None)


async def test_the_log_is_trimmed_only_below_the_mark_less_what_is_kept(rig: Rig) -> None:
    # One entry per node of the stream, so that trimming may end anywhere.
    await rig.redis.config_set("stream-node-max-entries", 1)
    try:
        await append(rig, entry(rig, op=b"unblock", body=struct.pack(">HH", 0, 0)))
        for _ in range(20):
            await places_held(rig.on, 1)
        persister = rig.persister(retention=5, batch=10)
        numbers = []
        while await persister.step(block_ms=1):
            numbers.append(await kept(rig))
    finally:
        await rig.redis.config_set("stream-node-max-entries", 100)

    assert numbers == [(5, 22), (15, 22), (17, 22)]


async def kept(rig: Rig) -> tuple[int, int]:
    """The first and the last entry of the log."""
    numbers = [int(stream_id.partition(b"-")[2]) for stream_id, _ in await rig.on.log()]
    return numbers[0], numbers[-1]


async def test_holds_are_busy_until_the_mark_moves(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn, max_backlog=3) as rig:
        await held(rig.on, "A-1")
        await held(rig.on, "A-2")
        assert (await rig.on.hold("A-3")).status is Status.BUSY

        await rig.drain()

        assert (await rig.on.hold("A-3")).status is Status.DONE


async def test_a_mark_that_was_left_behind_does_not_keep_holds_busy(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn, max_backlog=3) as rig:
        await held(rig.on, "A-1")
        await held(rig.on, "A-2")
        await rig.drain()
        # A persister that died between the commit and telling Redis.
        await rig.redis.delete(rig.on.keys.key("mark"))
        assert (await rig.on.hold("A-3")).status is Status.BUSY

        assert await rig.drain() == 0

        assert (await rig.on.hold("A-3")).status is Status.DONE


FENCES = {
    "mode": "UPDATE control SET mode = 'db' WHERE shard = $1",
    "epoch": "UPDATE control SET epoch = 2 WHERE shard = $1",
}


@pytest.mark.parametrize("fence", FENCES)
async def test_nothing_is_applied_to_a_shard_that_is_not_served_from_this_epoch(rig: Rig, fence: str) -> None:
    persister = rig.persister(refresh_s=LONG_S)
    await rig.drain(persister)
    await rig.execute(FENCES[fence], rig.shard)
    hold_id = await held(rig.on, "A-1")

    with pytest.raises(LostRace):
        await persister.step(block_ms=1)

    assert await rig.drain(rig.persister()) == 0
    assert await rig.hold_rows(hold_id) == []
    assert (await rig.marks())[rig.shard] == 1


async def test_a_persister_waits_for_a_change_of_mode_and_then_sees_it(rig: Rig) -> None:
    persister = rig.persister(refresh_s=LONG_S)
    await rig.drain(persister)
    hold_id = await held(rig.on, "A-1")
    async with rig.pool.acquire() as transition:
        changing = transition.transaction()
        await changing.start()
        await transition.execute("SELECT pg_advisory_xact_lock($1::int, $2::int)", 0x484F4C44, rig.shard)
        await transition.execute(FENCES["mode"], rig.shard)
        step = asyncio.create_task(persister.step(block_ms=1))
        await eventually(lambda: waits_for_lock(rig), "the persister waits for the fence")
        await changing.commit()

    with pytest.raises(LostRace):
        await step
    assert await rig.hold_rows(hold_id) == []


async def waits_for_lock(rig: Rig) -> bool:
    return bool(await rig.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))


async def test_a_shard_that_comes_back_is_served_again(rig: Rig) -> None:
    other = await rig.open_other(same_shard=False)
    await rig.drain()
    await rig.execute(FENCES["mode"], rig.shard)
    persister = rig.persister(refresh_s=0)
    await hold(rig, other, "A-1")
    hold_id = await held(rig.on, "A-1")
    await rig.drain(persister)
    assert await rig.hold_rows(hold_id) == []

    await rig.execute("UPDATE control SET mode = 'redis' WHERE shard = $1", rig.shard)
    await rig.drain(persister)

    assert await rig.hold_rows(hold_id)


async def test_a_lost_race_does_not_end_a_persister(rig: Rig) -> None:
    persister = rig.persister(refresh_s=LONG_S)
    await rig.drain(persister)
    await held(rig.on, "A-1")
    await rig.drain()
    hold_id = await held(rig.on, "A-2")

    async with running(persister.run()):
        await eventually(lambda: rig.hold_rows(hold_id), "the hold is persisted")


async def test_a_persister_ends_whenever_it_is_cancelled(rig: Rig) -> None:
    """Also where a client library drops the cancellation, which depends on the turn of the event loop that it meets."""
    persister = rig.persister(refresh_s=LONG_S)
    await rig.drain(persister)
    for turns in range(20):
        # Something waits, so that the next look at the log is not a long one.
        await places_held(rig.on, 1)
        task = asyncio.create_task(persister.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done, f"cancelled after {turns} turns, and still running"
        assert task.cancelled()
