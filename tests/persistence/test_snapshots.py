"""Snapshots are one per event and minute; the sweep ends what is overdue, and nothing that the log may still extend."""

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from redis.asyncio import Redis

from holdfast.engine.keys import shard_of
from holdfast.engine.settings import Settings
from holdfast.engine.status import Status
from holdfast.persistence import snapshots
from holdfast.persistence.fence import SHARD_LOCKS
from holdfast.persistence.pool import connect
from holdfast.persistence.snapshots import snapshot, sweep, sweep_overdue, take_snapshots
from holdfast.persistence.verify import verify
from support.engine import SHARDS
from support.persisting import Rig, rigged, running
from support.polling import eventually
from support.scripts import held, places_held, reap, sell


async def overdue(rig: Rig, *hold_ids: UUID) -> None:
    """Move the end of holds a minute into the past, by both servers' clocks and for good."""
    await rig.on.lapse(*hold_ids)
    await rig.execute(
        "UPDATE seat_holds SET held_until = now() - interval '1 minute' WHERE hold_id = ANY ($1::uuid[])",
        list(hold_ids),
    )


async def statuses(rig: Rig, *hold_ids: UUID) -> list[str]:
    return [(await rig.hold_rows(hold_id))[0]["status"] for hold_id in hold_ids]


async def test_a_minute_has_one_snapshot_of_an_event_whoever_takes_it(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        other = await rig.open_other(same_shard=False)
        await held(rig.on, "A-1", "A-2")
        await sell(rig.on, await places_held(rig.on, 3))
        await rig.drain()

        await asyncio.gather(*(take_snapshots(rig.pool) for _ in range(4)))

        rows = await rig.fetch("SELECT * FROM occupancy_snapshots")
    # The minute may have turned meanwhile, for some of them.
    assert len({(row["event_id"], row["taken_at"]) for row in rows}) == len(rows)
    assert {row["event_id"] for row in rows} == {rig.event.event_id, other.event_id}
    counted = {(row["capacity"], row["held"], row["sold"], row["blocked"]) for row in rows}
    assert counted == {(80, 2, 3, 0), (80, 0, 0, 0)}
    assert {row["taken_at"].second for row in rows} == {0}


async def test_drafts_and_past_events_have_no_snapshots(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        for state in ("draft", "cancelled", "archived"):
            await rig.execute("UPDATE events SET state = $1", state)
            assert await take_snapshots(rig.pool) == 0
        await rig.execute("UPDATE events SET state = 'closed'")
        assert await take_snapshots(rig.pool) == 1


async def test_the_sweep_ends_what_is_overdue(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        seats, places = await held(rig.on, "A-1", "A-2"), await places_held(rig.on, 4)
        live = await held(rig.on, "A-3")
        await rig.drain()
        await overdue(rig, seats, places)

        assert await sweep_overdue(rig.redis, rig.pool) == 2
        assert await sweep_overdue(rig.redis, rig.pool) == 0

        assert await statuses(rig, seats, places, live) == ["expired", "expired", "active"]
        assert {row["release_reason"] for row in await rig.hold_rows(seats)} == {"ttl_expired"}
        assert (await rig.seat("A-1"))["status"] == "available"
        assert [(await rig.zone(zone))["held"] for zone in (0, 1)] == [1, 0]
        audited = await rig.audit("seat_hold_expired")
        assert {row["user_agent"] for row in audited} == {"holdfast sweep"}
        assert len(await rig.outbox("SeatReleased")) == 2


async def test_what_is_overdue_within_the_grace_is_left_to_the_reaper(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        hold_id = await held(rig.on, "A-1")
        await rig.drain()
        await overdue(rig, hold_id)

        assert await sweep_overdue(rig.redis, rig.pool, grace_s=120) == 0
        assert await statuses(rig, hold_id) == ["active"]


async def test_two_sweeps_at_once_end_a_hold_once(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        holds = [await held(rig.on, f"{row}-{number}") for row in "ABC" for number in range(1, 11)]
        await rig.drain()
        await overdue(rig, *holds)

        ended = await asyncio.gather(*(sweep_overdue(rig.redis, rig.pool) for _ in range(3)))

        assert sum(ended) == len(holds)
        assert len(await rig.outbox("SeatReleased")) == len(holds)
        assert (await rig.zone(0))["held"] == 0


async def test_an_entry_that_waits_in_the_log_keeps_the_sweep_away(redis_url: str, database_dsn: str) -> None:
    """Given an extension that Redis has granted and no persister has applied, the hold is not overdue at all."""
    async with rigged(redis_url, database_dsn) as rig:
        user = rig.event.organization_id
        hold_id = await held(rig.on, "A-1", user=user)
        await rig.drain()
        await rig.execute("UPDATE seat_holds SET held_until = now() - interval '1 minute'")
        reply = await rig.on.backend.extend_holds(
            rig.event, [hold_id], user_id=user, key="key", extension_ms=60_000, total_ms=3_600_000
        )
        assert reply.status is Status.DONE

        assert await sweep_overdue(rig.redis, rig.pool) == 0
        await rig.drain()
        assert await sweep_overdue(rig.redis, rig.pool) == 0

        assert await statuses(rig, hold_id) == ["active"]


async def test_a_swept_hold_can_still_be_bought_and_its_later_expiry_is_nothing_new(
    redis_url: str, database_dsn: str
) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        bought, left = await held(rig.on, "A-1", ttl_ms=1_000), await held(rig.on, "A-2", ttl_ms=1_000)
        await rig.drain()

        async def swept() -> bool:
            return await sweep_overdue(rig.redis, rig.pool, grace_s=0) > 0 or "expired" in await statuses(rig, left)

        await eventually(swept, "the holds are swept")
        await sell(rig.on, bought)
        await reap(rig.on)
        await rig.drain()
        connection = await connect(database_dsn, name="verify", statement_timeout_ms=None)
        found = await verify(rig.redis, connection, SHARDS)
        await connection.close()

        assert await statuses(rig, bought, left) == ["converted", "expired"]
        assert found.findings == ()


@pytest.mark.parametrize(("mode", "status"), [("db", "expired"), ("recovering", "active")])
async def test_the_mode_of_the_shard_decides(redis_url: str, database_dsn: str, mode: str, status: str) -> None:
    """Without Redis only rows count, and ending them is nothing to worry about; while a shard recovers nobody does."""
    async with rigged(redis_url, database_dsn) as rig:
        hold_id = await held(rig.on, "A-1")
        await rig.drain()
        await overdue(rig, hold_id)
        await held(rig.on, "A-2")
        await rig.execute("UPDATE control SET mode = $1", mode)

        assert await sweep_overdue(rig.redis, rig.pool) == 0
        assert await statuses(rig, hold_id) == [status]


async def test_a_transition_keeps_the_sweep_out(redis_url: str, database_dsn: str) -> None:
    """Given a transition that has the fence and moves the epoch on, the sweep waits and then leaves the shard alone."""
    async with rigged(redis_url, database_dsn) as rig:
        hold_id = await held(rig.on, "A-1")
        await rig.drain()
        await overdue(rig, hold_id)
        shard = shard_of(rig.event.event_id, SHARDS)
        transition: Any = await asyncpg.connect(database_dsn)
        try:
            async with transition.transaction():
                await transition.execute("SELECT pg_advisory_xact_lock($1::int, $2::int)", SHARD_LOCKS, shard)
                sweeping = asyncio.create_task(sweep_overdue(rig.redis, rig.pool))
                await eventually(
                    lambda: rig.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
                    "the sweep waits for the fence",
                )
                await transition.execute("UPDATE control SET epoch = 2 WHERE shard = $1", shard)
                await transition.execute("INSERT INTO shard_marks (shard, epoch, seq) VALUES ($1, 2, 100)", shard)
            assert await sweeping == 0
        finally:
            await transition.close()
        assert await statuses(rig, hold_id) == ["active"]


async def test_the_jobs_run_until_they_are_cancelled(
    redis_url: str, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SWEEP_INTERVAL_S", 0.05)
    settings = Settings(redis_url=redis_url, postgres_dsn=database_dsn, shards=SHARDS)
    jobs = (snapshot(settings), sweep(settings), snapshot(settings), sweep(settings))
    async with rigged(redis_url, database_dsn) as rig, running(*jobs):
        await eventually(lambda: rig.value("SELECT count(*) FROM occupancy_snapshots"), "a snapshot is taken")
        hold_id = await held(rig.on, "A-1")
        await rig.drain()
        await overdue(rig, hold_id)

        async def ended() -> bool:
            return await statuses(rig, hold_id) == ["expired"]

        await eventually(ended, "the hold is swept")


async def test_a_job_that_is_told_to_stop_while_it_asks_redis_stops(redis_url: str) -> None:
    """On Python 3.11 redis-py can take a cancellation for an answer that came in time."""
    async with Redis.from_url(redis_url) as redis:

        async def ask() -> None:
            await redis.ping()

        for turns in range(60):
            job = asyncio.create_task(snapshots._every(0.001, ask, "Redis did not answer"))
            for _ in range(turns):
                await asyncio.sleep(0)
            job.cancel()
            done, _ = await asyncio.wait([job], timeout=5)
            assert done == {job}
