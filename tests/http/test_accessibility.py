"""Wheelchair seats over HTTP: what buyers are told, the audit, the books, and what everybody sees live."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from holdfast.engine.epochs import Mode
from holdfast.http.live_hub import Hub
from holdfast.persistence.feed import Feed
from holdfast.persistence.pool import open_pool
from holdfast.persistence.verify import verify
from support.engine import SHARDS, UNLIMITED, accessible_document
from support.front_end import FrontEnd, serving
from support.outbox import publishing
from support.persisting import running
from support.polling import eventually


@pytest.fixture
async def front(redis_url: str, database_dsn: str) -> AsyncIterator[FrontEnd]:
    async with serving(redis_url, database_dsn, accessible_document()) as front:
        yield front


async def hold(front: FrontEnd, body: dict[str, Any], **who: Any) -> Any:
    return await front.call("POST", f"/api/events/{front.event.event_id}/holds", body, **who)


async def read(front: FrontEnd, rest: str) -> Any:
    return (await front.call("GET", f"/api/events/{front.event.event_id}{rest}")).data


async def audit(front: FrontEnd, action: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(front.settings.postgres_dsn)
    try:
        rows = await connection.fetch("SELECT changes FROM audit_log WHERE action = $1 ORDER BY id", action)
    finally:
        await connection.close()
    return [json.loads(row["changes"]) for row in rows]


async def assert_clean(front: FrontEnd) -> None:
    connection = await asyncpg.connect(front.settings.postgres_dsn)
    try:
        found = await verify(front.rig.redis, connection, SHARDS)
    finally:
        await connection.close()
    assert found.findings == ()


async def test_a_buyer_is_told_of_the_companion_seats_and_others_do_not_get_them(front: FrontEnd) -> None:
    reserved = await front.reserve("B-1")

    assert (reserved.status, reserved.data["companion_seat_ids"]) == (201, ["B-2", "B-3"])
    shown = await front.call("GET", f"/api/holds/{reserved.data['hold_id']}")
    assert shown.data["companion_seat_ids"] == ["B-2", "B-3"]
    refused = await front.reserve("B-2", user=uuid4())
    assert (refused.status, refused.body["error"]) == (409, "seat_not_available")
    assert (await front.reserve("B-2")).status == 201
    await assert_clean(front)


async def test_seats_map_and_occupancy_tell_kept_seats_apart(front: FrontEnd) -> None:
    await front.reserve("B-1")
    await front.reserve("A-5")

    seats = {seat["seat_id"]: (seat["category"], seat["status"]) for seat in (await read(front, "/seats"))["seats"]}
    assert seats["B-1"] == ("wheelchair", "held")
    assert seats["B-2"] == ("companion", "kept")
    assert seats["A-2"] == ("companion", "available")
    assert (await read(front, "/seats?format=map"))["map"].startswith("wa..h.....hcc....")
    assert (await read(front, "/seats/B-3"))["status"] == "kept"
    totals = await read(front, "/occupancy")
    counted = {name: totals[name] for name in ("available", "available_wheelchair", "available_companion", "kept")}
    assert counted == {"available": 68, "available_wheelchair": 1, "available_companion": 3, "kept": 2}


async def test_an_accessible_request_gets_wheelchair_and_companion(front: FrontEnd) -> None:
    zone = front.event.zones[0].document.zone_id
    best = await hold(front, {"best_available": {"zone_id": zone, "count": 2, "accessible": True}})
    assert best.status == 201
    assert [seat["seat_id"] for seat in best.data["seats"]] == ["A-1", "A-2"]
    again = await hold(front, {"best_available": {"zone_id": zone, "count": 1, "accessible": True}})
    assert (again.status, again.body["error"]) == (409, "wheelchair_limit_exceeded")
    floor = await hold(front, {"best_available": {"zone_id": "floor", "count": 1, "accessible": True}})
    assert (floor.status, floor.body["error"]) == (400, "invalid_request")


@pytest.mark.parametrize("mode", [Mode.REDIS, Mode.DB])
@pytest.mark.parametrize("enabled", [True, False])
async def test_accessibility_bookings_are_audited(redis_url: str, database_dsn: str, mode: Mode, enabled: bool) -> None:
    policy = msgspec.structs.replace(UNLIMITED, accessibility_audit_enabled=enabled)
    async with serving(redis_url, database_dsn, accessible_document(policy=policy), mode=mode) as front:
        assert (await front.reserve("B-1")).status == 201
        assert (await front.reserve("A-5")).status == 201

        booking = {
            "seat_ids": ["B-1"],
            "companion_seat_ids": ["B-2", "B-3"],
            "kept_seat_ids": ["B-2", "B-3"],
            "companion_soft_reserved": True,
        }
        assert await audit(front, "accessibility_booking") == ([booking] if enabled else [])


async def test_declining_lets_the_companion_seats_go(front: FrontEnd) -> None:
    hold_id = (await front.reserve("A-1")).data["hold_id"]
    ordinary = (await front.reserve("A-5")).data["hold_id"]

    declined = await front.call("POST", f"/api/holds/{hold_id}/decline-companions")
    assert (declined.status, declined.data["companion_seat_ids"]) == (200, ["A-2"])
    assert [seat["seat_id"] for seat in declined.data["seats"]] == ["A-1"]
    assert (await front.call("POST", f"/api/holds/{hold_id}/decline-companions")).status == 200
    assert (await front.reserve("A-2", user=uuid4())).status == 201
    assert await audit(front, "companions_declined") == [{"seat_ids": ["A-1"]}]
    without = await front.call("POST", f"/api/holds/{ordinary}/decline-companions")
    assert (without.status, without.body["error"]) == (404, "seat_not_found")
    strangers = await front.call("POST", f"/api/holds/{hold_id}/decline-companions", user=uuid4())
    assert (strangers.status, strangers.body["error"]) == (404, "hold_not_found")
    await assert_clean(front)


async def test_verify_finds_another_taker_of_a_wheelchair_seat(front: FrontEnd) -> None:
    await front.reserve("A-1")
    ordinal = front.event.seats["A-1"].value
    await front.rig.redis.hset(front.rig.on.keys.key("counts"), f"w{ordinal}", uuid4().bytes)
    connection = await asyncpg.connect(front.settings.postgres_dsn)
    try:
        found = await verify(front.rig.redis, connection, SHARDS)
    finally:
        await connection.close()

    assert [finding.subject for finding in found.findings] == ["seat A-1"]


async def test_live_views_hear_of_seats_that_are_kept_and_freed(front: FrontEnd) -> None:
    heard: list[tuple[str, tuple[str, ...]]] = []
    async with open_pool(front.settings.postgres_dsn, name="test") as pool, publishing(front.settings):
        hub = Hub(Feed(pool))
        async with running(hub.run()), hub.reader(front.event) as reader:
            assert b'"map":"wa' in (await reader.next(10) or b"")

            async def hears(change: str) -> bool:
                hub.catch_up()
                for line in (await reader.next(0.05) or b"").decode().splitlines():
                    if line.startswith("data: "):
                        changes = json.loads(line.removeprefix("data: "))["changes"]
                        heard.extend((each["event"], tuple(each["seat_ids"])) for each in changes)
                return (change, ("A-2",)) in heard

            hold_id = (await front.reserve("A-1")).data["hold_id"]
            await eventually(lambda: hears("companions_kept"), "the companion seat is shown as kept")
            await front.call("POST", f"/api/holds/{hold_id}/decline-companions")
            await eventually(lambda: hears("companions_freed"), "the companion seat is shown as free")
    told = [each for each in heard if each != ("seat_held", ("A-1",))]
    assert told == [("companions_kept", ("A-2",)), ("companions_declined", ("A-1",)), ("companions_freed", ("A-2",))]
