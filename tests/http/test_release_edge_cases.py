"""The edge cases of releasing a seat, each named as the specification's table of failure modes names it."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from holdfast.engine import telemetry
from holdfast.engine.settings import Settings
from holdfast.persistence.occupancy import channel_of
from holdfast.persistence.verify import verify
from support.checking_out import cancel, checked_out, complete, reserve
from support.database import execute, unreachable
from support.engine import SHARDS
from support.front_end import FrontEnd, Reply, serving
from support.outbox import publishing
from support.polling import eventually
from support.scripts import reap, sell
from support.servers import OwnServer

# What a disk that is full makes of a transaction: everything in it is undone, and it is tried again.
REFUSE_SEATS = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON seats FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


async def release(front: FrontEnd, hold: UUID, **who: Any) -> Reply:
    return await front.call("DELETE", f"/api/holds/{hold}", **who)


async def ends_of(front: FrontEnd, hold: UUID) -> list[str]:
    """What the audit says of the end of a hold: each once, whoever ended it."""
    return await front.rig.value(
        "SELECT array_agg(changes ->> 'reason') FROM audit_log "
        "WHERE entity_id = $1 AND action IN ('seat_released', 'seat_hold_expired')",
        str(hold),
    )


async def test_hold_already_cancelled(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")

    replies = [await release(front, hold) for _ in range(3)]

    assert [reply.status for reply in replies] == [200] * 3
    assert [reply.data["released_count"] for reply in replies] == [1, 0, 0]
    assert await ends_of(front, hold) == ["user_cancelled"]


async def test_seat_already_sold(front: FrontEnd) -> None:
    """A checkout that is completed is not given back, neither by its buyer nor by a payment that fails afterwards."""
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)
    assert (await complete(front, checkout)).status == 200

    replies = [await cancel(front, checkout), await complete(front, checkout, "failed")]

    assert [(reply.status, reply.error) for reply in replies] == [(409, "checkout_completed")] * 2
    assert (await front.rig.seat("A-1"))["status"] == "sold"
    assert await ends_of(front, hold) is None


async def test_seat_already_available(front: FrontEnd) -> None:
    """Its time was over first: a release finds nothing to do, and the next holder is not touched by another one."""
    hold = await reserve(front, "A-1")
    await front.rig.lapse(hold)
    await reap(front.rig.on)

    late = await release(front, hold)
    other = await reserve(front, "A-1", user=uuid4())
    again = await release(front, hold)

    assert [(reply.status, reply.data["status"]) for reply in (late, again)] == [(200, "expired")] * 2
    assert [row["status"] for row in await front.rig.hold_rows(other)] == ["active"]
    assert await ends_of(front, hold) == ["ttl_expired"]


async def test_optimistic_lock_conflict(front: FrontEnd) -> None:
    """Whoever changes a seat at the same time, each change happens once, and the last holder is the only one."""
    hold = await reserve(front, "A-1")
    version = (await front.rig.seat("A-1"))["version"]
    others = [uuid4() for _ in range(8)]

    released, *tried = await asyncio.gather(
        asyncio.gather(*(release(front, hold) for _ in range(8))),
        *(front.reserve("A-1", user=user) for user in others),
    )

    assert {reply.status for reply in released} == {200}
    assert sum(reply.data["released_count"] for reply in released) == 1
    assert await ends_of(front, hold) == ["user_cancelled"]
    granted = [reply.data["hold_id"] for reply in tried if reply.status == 201]
    assert len(granted) <= 1
    active = await front.rig.fetch("SELECT hold_id::text AS id FROM seat_holds WHERE status = 'active'")
    assert [row["id"] for row in active] == granted
    # Every change of the seat has been counted: released, and perhaps held again.
    assert (await front.rig.seat("A-1"))["version"] == version + 1 + len(granted)
    async with front.rig.pool.acquire() as connection:
        assert (await verify(front.rig.redis, connection, SHARDS)).findings == ()


async def test_transaction_rollback(front: FrontEnd) -> None:
    """A release that Postgres undoes halfway leaves hold and seat as they were, and is tried until both are changed."""
    hold = await reserve(front, "A-1")
    await front.rig.execute(REFUSE_SEATS)
    failures = telemetry.persist_failures.value

    releasing = asyncio.ensure_future(release(front, hold))
    await eventually(lambda: telemetry.persist_failures.value > failures, "the transaction is refused")
    (row,) = await front.rig.hold_rows(hold)
    assert (row["status"], (await front.rig.seat("A-1"))["status"]) == ("active", "held")
    await front.rig.execute("DROP TRIGGER refuse ON seats")

    assert (await releasing).status == 200
    (row,) = await front.rig.hold_rows(hold)
    assert (row["status"], (await front.rig.seat("A-1"))["status"]) == ("cancelled", "available")
    assert await ends_of(front, hold) == ["user_cancelled"]


async def test_hold_not_found(front: FrontEnd) -> None:
    reply = await release(front, uuid4())

    assert (reply.status, reply.error) == (404, "hold_not_found")


async def test_database_outage(front: FrontEnd) -> None:
    """Nothing durable can be promised meanwhile; once Postgres is back, a repeat is answered."""
    hold = await reserve(front, "A-1")
    async with unreachable(front.rig.dsn):
        refused = await release(front, hold)

        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1

    async def released() -> bool:
        return (await release(front, hold)).status == 200

    await eventually(released, "the hold is released")
    await eventually(lambda: ends_of(front, hold), "Postgres knows of it")
    assert await ends_of(front, hold) == ["user_cancelled"]
    assert (await front.rig.seat("A-1"))["status"] == "available"


async def test_redis_unavailable(tmp_path: Path, database_dsn: str) -> None:
    """Postgres decides instead."""
    own = OwnServer(tmp_path / "valkey")
    try:
        async with serving(own.url, database_dsn) as front:
            hold = await reserve(front, "A-1")
            own.stop()

            async def answered() -> Reply | None:
                reply = await release(front, hold)
                assert reply.status in (200, 503)
                return reply if reply.status == 200 else None

            reply: Reply = await eventually(answered, "the hold is released without Redis")

            assert (reply.data["released_count"], reply.data["durability"]) == (1, "postgres")
            assert await ends_of(front, hold) == ["user_cancelled"]
            assert (await front.reserve("A-1", user=uuid4())).status == 201
    finally:
        own.stop()


async def test_ets_table_missing(front: FrontEnd) -> None:
    """A process that has lost what it remembered as taken releases all the same, and refuses nobody by mistake."""
    hold = await reserve(front, "A-1")
    for client in await front.rig.redis.client_list():
        if client["cmd"].startswith("xread"):
            await front.rig.redis.client_kill_filter(_id=client["id"])

    assert (await release(front, hold)).data["released_count"] == 1
    assert (await front.reserve("A-1", user=uuid4())).status == 201


async def test_pubsub_broadcast_fails(front: FrontEnd) -> None:
    """Nobody is there to announce anything, and the release does not wait for it. Whoever comes back tells it."""
    hold = await reserve(front, "A-1")
    assert (await release(front, hold)).status == 200
    (row,) = await front.rig.outbox("SeatReleased")
    assert row["announced_at"] is None
    assert row["payload"]["reason"] == "user_cancelled"

    async with front.rig.redis.pubsub() as heard:
        await heard.subscribe(channel_of(front.event.organization_id, front.event.event_id))
        async with publishing(Settings(redis_url=front.settings.redis_url, postgres_dsn=front.rig.dsn)):

            async def told() -> bool:
                message = await heard.get_message(ignore_subscribe_messages=True, timeout=0.1)
                return message is not None and b'"seat_released"' in message["data"]

            await eventually(told, "subscribers hear of the release")


async def test_oban_job_cancellation_fails(front: FrontEnd) -> None:
    """The reaper is at work on the same hold: one of the two ends it."""
    live, late = await reserve(front, "A-1"), await reserve(front, "A-2")
    await front.rig.lapse(late)

    first, second, *_ = await asyncio.gather(
        release(front, live), release(front, late), *(reap(front.rig.on) for _ in range(5))
    )

    assert (first.status, first.data["status"]) == (200, "cancelled")
    assert (second.status, second.data["status"]) == (200, "expired")
    await eventually(lambda: ends_of(front, late), "the expiry is committed")
    assert (await ends_of(front, live), await ends_of(front, late)) == (["user_cancelled"], ["ttl_expired"])
    for seat in ("A-1", "A-2"):
        assert (await front.rig.seat(seat))["status"] == "available"


async def test_ticket_exists_paid(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    await sell(front.rig.on, hold)

    refused = await release(front, hold)

    assert (refused.status, refused.error) == (409, "hold_sold")
    await eventually(lambda: execute(front.rig.dsn, "SELECT count(*) FROM tickets"), "the ticket is there")
    assert (await front.rig.seat("A-1"))["status"] == "sold"


async def test_checkout_has_payment_in_flight(front: FrontEnd) -> None:
    """Until the payment is decided its seats stay; then a release finds it decided."""
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)

    refused = await release(front, hold)
    assert (refused.status, refused.error) == (409, "hold_in_checkout")
    assert (await front.rig.seat("A-1"))["status"] == "held"

    assert (await complete(front, checkout, "failed")).status == 200
    again = await release(front, hold)
    assert (again.status, again.data["status"], again.data["released_count"]) == (200, "cancelled", 0)
    assert await ends_of(front, hold) == ["payment_failed"]
