"""The registry of an event over HTTP: whether Redis and Postgres agree, and making them."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.http.app import create_app
from holdfast.http.tokens import Role
from holdfast.persistence.ballot import FRONT_END, process_name
from holdfast.persistence.transitions import Cause, to_db
from support.checking_out import reserve
from support.front_end import FrontEnd, Reply, serving
from support.polling import eventually

ADMIN = uuid4()


async def look(front: FrontEnd, **who: Any) -> Reply:
    return await front.call("GET", f"/api/admin/registry/{front.event.event_id}", **{"role": Role.ORGANIZER, **who})


async def reconcile(front: FrontEnd, *, headers: dict[str, str] | None = None, **body: Any) -> Reply:
    who = {"role": body.pop("role", Role.ADMIN), "user": ADMIN}
    path = f"/api/admin/registry/{front.event.event_id}/reconcile"
    return await front.call("POST", path, body, headers=headers, **who)


async def test_layers_in_sync(front: FrontEnd) -> None:
    await reserve(front, "A-1")

    found = await look(front)

    assert found.status == 200
    assert (found.data["consistent"], found.data["status"], found.data["message"]) == (True, "ok", "All layers in sync")
    event, shard = found.data["event"], found.data["shard"]
    counts = {"capacity": 80, "held": 1, "sold": 0, "blocked": 0}
    assert (event["redis"], event["postgres"], event["agreement"]) == (counts, counts, "agrees")
    assert (shard["shard"], shard["mode"], shard["epoch"], shard["open"]) == (
        front.rig.shard,
        "redis",
        FIRST_EPOCH,
        True,
    )
    assert (shard["lag_entries"], shard["dead_letters"]) == (0, 0)


async def test_the_hot_caches_of_the_front_ends_are_a_layer(front: FrontEnd) -> None:
    async def agreeing() -> list[str]:
        hot = (await look(front)).data["event"]["hot"]
        return [each["front_end"] for each in hot if each["agreement"] == "agrees"]

    (name,) = await eventually(agreeing, "the front end says what its hot cache knows")

    assert name == process_name(FRONT_END)


async def test_layers_that_differ_are_seen_and_reconciled(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    counts = front.rig.on.keys.key("counts")
    zone = await front.rig.redis.hget(counts, "0")
    assert isinstance(zone, bytes)
    await front.rig.redis.hset(counts, "0", bytes(len(zone)))

    stale = await look(front)
    dry = await reconcile(front, dry_run=True)
    repaired = await reconcile(front, notes="The numbers are off.")
    again = await reconcile(front)

    assert (stale.data["consistent"], stale.data["status"]) == (False, "stale")
    assert (dry.status, dry.data["repaired"]) == (200, False)
    assert dry.data["difference_count"] == len(dry.data["differences"]) > 0
    assert {"subject", "problem"} == set(dry.data["differences"][0])
    assert (repaired.data["repaired"], repaired.data["differences"]) == (True, dry.data["differences"])
    assert (again.data["repaired"], again.data["difference_count"]) == (False, 0)
    assert (await look(front)).data["consistent"] is True
    (audit,) = await front.rig.audit("event_reconciled")
    assert (audit["changes"]["changed_by"], audit["changes"]["notes"]) == (str(ADMIN), "The numbers are off.")
    assert audit["changes"]["findings"] == repaired.data["difference_count"]
    assert (await front.reserve("A-1", user=uuid4())).error == "seat_held_by_another_user"
    assert (await front.reserve("A-2", user=uuid4())).status == 201


async def test_a_repeat_under_a_key_gets_the_first_answer(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "key-1"}

    first, again = [await reconcile(front, headers=key, dry_run=True) for _ in range(2)]
    other = await reconcile(front, headers=key)

    assert (first.status, again.body, again.headers["Idempotency-Replayed"]) == (200, first.body, "true")
    assert (other.status, other.error) == (422, "hold_id_reused")


async def test_not_reconcilable_while_postgres_serves(front: FrontEnd) -> None:
    await to_db(front.rig.pool, front.rig.shard, ShardState(Mode.REDIS, FIRST_EPOCH), Cause("test", "test"))

    found, refused = await look(front), await reconcile(front)

    assert (found.data["consistent"], found.data["event"]["agreement"]) == (True, "not in Redis")
    assert (found.data["event"]["redis"], found.data["shard"]["mode"]) == (None, "db")
    assert (refused.status, refused.error) == (409, "not_reconcilable")
    assert "is not served from Redis" in refused.body["detail"]


async def test_not_reconcilable_out_of_service(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    keys = front.rig.on.keys
    await front.rig.redis.srem(keys.key("events"), keys.scope)
    await front.rig.redis.delete(keys.key("counts"))

    found, refused = await look(front), await reconcile(front)

    assert (found.data["message"], refused.error) == ("The event is not in service.", "not_reconcilable")
    assert "is not open in Redis" in refused.body["detail"]


async def test_behind_while_nothing_is_persisted(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, persist=False) as front:
        found = await look(front)

        assert (found.data["event"]["agreement"], found.data["status"]) == ("behind", "stale")
        assert found.data["shard"]["lag_entries"] == 1
        await front.rig.drain()
        assert (await look(front)).data["status"] == "ok"


@pytest.mark.parametrize("role", [Role.CUSTOMER, Role.SCANNER, Role.SERVICE])
async def test_forbidden(front: FrontEnd, role: Role) -> None:
    assert (await look(front, role=role)).error == "forbidden"
    assert (await reconcile(front, role=role)).error == "forbidden"


async def test_forbidden_for_organizers_who_may_only_look(front: FrontEnd) -> None:
    assert (await look(front, role=Role.ORGANIZER)).status == 200
    assert (await reconcile(front, role=Role.ORGANIZER)).error == "forbidden"


@pytest.mark.parametrize("body", [{"dry_run": "yes"}, {"force": True}, {"notes": "\x00"}])
async def test_invalid_request(front: FrontEnd, body: dict[str, Any]) -> None:
    assert (await reconcile(front, **body)).error == "invalid_request"


async def test_unavailable_without_redis(front: FrontEnd) -> None:
    cut_off = msgspec.structs.replace(front.settings, redis_url="redis://127.0.0.1:1/0")
    async with TestClient(TestServer(create_app(cut_off))) as client:
        other = FrontEnd(client, cut_off, front.rig)

        for refused in (await look(other), await reconcile(other)):
            assert (refused.status, refused.error) == (503, "unavailable")
            assert int(refused.headers["Retry-After"]) >= 1
