"""Who serves the shards over HTTP: seeing it, and changing it with the epoch as precondition."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.shards import FIRST_EPOCH
from holdfast.http.app import create_app
from holdfast.http.tokens import Role
from support.engine import SHARDS
from support.front_end import FrontEnd, Reply, serving
from support.polling import eventually

ADMIN = uuid4()


async def look(front: FrontEnd, **who: Any) -> Reply:
    return await front.call("GET", "/api/admin/mode", **{"role": Role.ADMIN, **who})


async def change(front: FrontEnd, mode: str, *shards: tuple[int, int], reason: str = "an upgrade", **who: Any) -> Reply:
    named = [{"shard": shard, "epoch": epoch} for shard, epoch in shards or [(front.rig.shard, FIRST_EPOCH)]]
    body = {"mode": mode, "reason": reason, "shards": named}
    return await front.call("PUT", "/api/admin/mode", body, **{"role": Role.ADMIN, "user": ADMIN, **who})


async def test_modes_are_shown_with_epochs_and_voters(front: FrontEnd) -> None:
    async def voting() -> bool:
        return bool((await look(front)).data["voters"])

    await eventually(voting, "the front end votes")
    found = await look(front)

    assert found.status == 200
    assert [(each["shard"], each["mode"], each["epoch"]) for each in found.data["shards"]] == [
        (shard, "redis", FIRST_EPOCH) for shard in range(SHARDS)
    ]
    assert [voter["reaches_redis"] for voter in found.data["voters"]] == [True]
    assert found.data["changes"] == []


async def test_a_shard_is_taken_to_postgres_and_back_while_seats_are_sold(front: FrontEnd) -> None:
    shard = front.rig.shard
    assert (await front.reserve("A-1")).status == 201

    away = await change(front, "db")

    assert away.status == 200
    (there,) = away.data
    assert (there["mode"], there["pinned"], there["reason"], there["actor"]) == (
        "db",
        True,
        "an upgrade",
        f"admin {ADMIN}",
    )
    assert there["epoch"] > FIRST_EPOCH
    assert (await front.reserve("A-1", user=uuid4())).error == "seat_held_by_another_user"
    assert (await front.reserve("A-2")).status == 201
    back = await change(front, "redis", (shard, there["epoch"]), reason="it is done")
    (here,) = back.data
    assert (here["mode"], here["pinned"]) == ("redis", False)
    assert (await front.reserve("A-2", user=uuid4())).error == "seat_held_by_another_user"
    assert (await front.reserve("A-3")).status == 201
    last, first = (await look(front)).data["changes"]
    assert (first["shard"], first["from_epoch"], first["mode"]) == (shard, FIRST_EPOCH, "db")
    assert (last["from_epoch"], last["mode"], last["reason"]) == (there["epoch"], "redis", "it is done")
    audits = await front.rig.audit("mode_changed")
    assert [(audit["user_id"], audit["organization_id"]) for audit in audits] == [
        (ADMIN, front.event.organization_id)
    ] * 2
    assert audits[0]["changes"] == {"mode": "db", "shards": [shard], "reason": "an upgrade"}


async def test_a_shard_that_is_in_the_mode_already_stays_in_its_epoch(front: FrontEnd) -> None:
    redis = await change(front, "redis")
    (there,) = (await change(front, "db")).data
    again = await change(front, "db", (front.rig.shard, there["epoch"]), reason="still")

    assert (redis.status, redis.data[0]["epoch"]) == (200, FIRST_EPOCH)
    assert (again.data[0]["epoch"], again.data[0]["reason"]) == (there["epoch"], "still")


async def test_epoch_moved_changes_nothing_at_all(front: FrontEnd) -> None:
    """Of several shards, one has moved on since they were looked at."""
    (moved,) = (await change(front, "db", (1, FIRST_EPOCH))).data
    before = (await look(front)).data["shards"]

    refused = await change(front, "db", (0, FIRST_EPOCH), (1, FIRST_EPOCH), (2, FIRST_EPOCH))

    assert (refused.status, refused.error) == (409, "epoch_moved")
    assert refused.body["detail"] == f"Shard 1 is in epoch {moved['epoch']}, not in {FIRST_EPOCH}."
    assert (await look(front)).data["shards"] == before


BAD: list[dict[str, Any]] = [
    {"mode": "recovering"},
    {"mode": "off"},
    {"reason": ""},
    {"reason": " "},
    {"reason": "x\x00"},
    {"shards": []},
    {"shards": [{"shard": 0}]},
    {"shards": [{"shard": 0, "epoch": 1}, {"shard": 0, "epoch": 1}]},
    {"shards": [{"shard": SHARDS, "epoch": 1}]},
    {"shards": [{"shard": -1, "epoch": 1}]},
    {"force": True},
]


async def test_invalid_request(front: FrontEnd) -> None:
    right = {"mode": "db", "reason": "why", "shards": [{"shard": 0, "epoch": FIRST_EPOCH}]}
    for wrong in BAD:
        refused = await front.call("PUT", "/api/admin/mode", {**right, **wrong}, role=Role.ADMIN)
        assert (refused.status, refused.error) == (400, "invalid_request"), wrong
    assert (await look(front)).data["changes"] == []


@pytest.mark.parametrize("role", [Role.CUSTOMER, Role.SCANNER, Role.ORGANIZER, Role.SERVICE])
async def test_forbidden(front: FrontEnd, role: Role) -> None:
    assert (await look(front, role=role)).error == "forbidden"
    assert (await change(front, "db", role=role)).error == "forbidden"


async def test_forbidden_but_to_the_organisation_that_operates_the_servers(redis_url: str, database_dsn: str) -> None:
    operator = uuid4()
    async with serving(redis_url, database_dsn, operator_organization=operator) as front:
        assert (await look(front)).error == "forbidden"
        assert (await change(front, "db")).error == "forbidden"
        assert (await look(front, org=operator)).data["changes"] == []
        assert (await change(front, "redis", org=operator)).status == 200


async def test_forbidden_to_everybody_until_somebody_is_said_to_operate_the_servers(
    redis_url: str, database_dsn: str
) -> None:
    async with serving(redis_url, database_dsn, operator_organization=None) as front:
        looked, changed = await look(front), await change(front, "db")

        assert (looked.status, changed.status) == (403, 403)
        assert "HOLDFAST_OPERATOR_ORGANIZATION" in changed.body["detail"]
        assert await front.rig.value("SELECT count(*) FROM control WHERE mode = 'db'") == 0


async def test_unavailable_while_redis_cannot_be_built(front: FrontEnd) -> None:
    cut_off = msgspec.structs.replace(front.settings, redis_url="redis://127.0.0.1:1/0")
    async with TestClient(TestServer(create_app(cut_off))) as client:
        other = FrontEnd(client, cut_off, front.rig)
        # Postgres takes over without Redis; the way back needs it.
        (there,) = (await change(other, "db")).data

        refused = await change(other, "redis", (front.rig.shard, there["epoch"]))

        assert (refused.status, refused.error) == (503, "unavailable")
    (shard,) = [each for each in (await look(front)).data["shards"] if each["shard"] == front.rig.shard]
    assert (shard["mode"], shard["epoch"]) == ("db", there["epoch"])
