"""Refusals reach the audit log, and a flood of them stays one row."""

from uuid import uuid4

import asyncpg
import msgspec
import pytest

from holdfast.engine.audit import Caller
from holdfast.engine.status import Status
from holdfast.persistence.pool import open_pool
from holdfast.persistence.refusals import SAMPLES, RefusalAudit

CALLER = Caller("203.0.113.9", "Firefox", "req-1")


def caller() -> Caller:
    return CALLER


async def test_a_single_refusal_has_a_row_of_its_own(database_dsn: str) -> None:
    organization, event, user = uuid4(), uuid4(), uuid4()
    audit = RefusalAudit()
    audit.record(organization, event, Status.SEAT_HELD_BY_ANOTHER_USER, user_id=user, seat_ids=("A-1",), caller=caller)

    async with open_pool(database_dsn, name="test") as pool:
        assert await audit.flush(pool) == 1
        row = await pool.fetchrow("SELECT * FROM audit_log")

    assert (row["organization_id"], row["event_id"], row["user_id"]) == (organization, event, user)
    assert row["action"] == "seat_reserve_failed"
    assert (row["ip_address"], row["user_agent"], row["request_id"]) == ("203.0.113.9", "Firefox", "req-1")
    changes = msgspec.json.decode(row["changes"])
    assert (changes["reason"], changes["count"]) == ("seat_held_by_another_user", 1)
    assert changes["samples"][0]["seat_ids"] == ["A-1"]


async def test_a_flood_is_one_row_per_event_and_outcome(database_dsn: str) -> None:
    organization, event, other = uuid4(), uuid4(), uuid4()
    audit = RefusalAudit()
    for _ in range(10_000):
        audit.record(organization, event, Status.SEAT_NOT_AVAILABLE, user_id=uuid4(), seat_ids=("B-2",), caller=caller)
    audit.record(organization, event, Status.RATE_LIMIT_EXCEEDED, user_id=uuid4(), seat_ids=(), caller=caller)
    audit.record(organization, other, Status.SEAT_NOT_AVAILABLE, user_id=uuid4(), seat_ids=("B-2",), caller=caller)

    async with open_pool(database_dsn, name="test") as pool:
        assert await audit.flush(pool) == 3
        assert await audit.flush(pool) == 0
        flood = await pool.fetchrow("SELECT * FROM audit_log WHERE (changes->>'count')::int > 1")

    assert flood["user_id"] is None
    changes = msgspec.json.decode(flood["changes"])
    assert changes["count"] == 10_000
    assert len(changes["samples"]) == SAMPLES


async def test_what_cannot_be_written_is_kept(database_dsn: str) -> None:
    organization, event = uuid4(), uuid4()
    audit = RefusalAudit()
    audit.record(organization, event, Status.BUSY, user_id=uuid4(), seat_ids=(), caller=caller)

    async with open_pool(database_dsn, name="test") as pool:
        await pool.execute("ALTER TABLE audit_log RENAME TO audit_log_away")
        with pytest.raises(asyncpg.UndefinedTableError):
            await audit.flush(pool)
        audit.record(organization, event, Status.BUSY, user_id=uuid4(), seat_ids=(), caller=caller)
        await pool.execute("ALTER TABLE audit_log_away RENAME TO audit_log")
        await audit.flush(pool)
        changes = msgspec.json.decode(await pool.fetchval("SELECT changes FROM audit_log"))

    assert changes["count"] == 2
