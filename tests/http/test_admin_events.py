"""Events over HTTP: loaded from documents and plans, listed, put on sale and taken off."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.epochs import Mode, ShardState
from holdfast.engine.keys import shard_of
from holdfast.engine.layout import EventDocument, EventState, compile_event
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.http.app import create_app
from holdfast.http.tokens import Role
from holdfast.persistence.transitions import Cause, to_db
from support.engine import SHARDS, document
from support.front_end import FrontEnd, Reply, serving
from support.persisting import log_keys

ADMIN = uuid4()


async def load(front: FrontEnd, event: EventDocument | dict[str, Any], **options: Any) -> Reply:
    return await front.call("POST", "/api/admin/events", event, **{"role": Role.ORGANIZER, **options})


async def set_state(front: FrontEnd, state: str, event: object = None, *, notes: str = "", **who: Any) -> Reply:
    path = f"/api/admin/events/{event or front.event.event_id}/state"
    return await front.call(
        "PUT", path, {"state": state, "notes": notes}, **{"role": Role.ORGANIZER, "user": ADMIN, **who}
    )


async def reserve(front: FrontEnd, doc: EventDocument, seat: str = "A-1") -> Reply:
    return await front.call("POST", f"/api/events/{doc.event_id}/seats/{seat}/reserve")


async def layout_of(front: FrontEnd, **zone: Any) -> str:
    """A stored layout with a floor."""
    venue = await front.call("POST", "/api/admin/venues", {"name": "Hall"}, role=Role.ADMIN)
    floor = {"zone_id": "floor", "zone_type": "ga_standing", "name": "Floor", "capacity": 10, **zone}
    plan = {"venue_id": venue.data["venue_id"], "name": "Plan", "zones": [floor]}
    layout_id = str(uuid4())
    assert (await front.call("PUT", f"/api/admin/layouts/{layout_id}", plan, role=Role.ADMIN)).status == 200
    return layout_id


def plan_on(layout_id: str, **members: Any) -> dict[str, Any]:
    reference = {"layout_id": layout_id, "version": 1}
    return {"event_id": str(uuid4()), "name": "Gala", "layout": reference, "state": "live", **members}


@pytest.mark.parametrize("role", [Role.ORGANIZER, Role.ADMIN])
async def test_a_document_is_loaded_and_on_sale_at_once(front: FrontEnd, role: Role) -> None:
    doc = document()
    assert (await reserve(front, doc)).error == "event_not_found"

    loaded = await load(front, doc, role=role)

    assert loaded.status == 201
    assert loaded.data == {
        "event_id": str(doc.event_id),
        "name": "Test night",
        "state": "live",
        "config_version": compile_event(front.event.organization_id, doc).version,
        "result": "created",
    }
    assert (await reserve(front, doc)).status == 201
    listed = await front.call("GET", "/api/admin/events", role=role)
    assert [each["event_id"] for each in listed.data] == [str(front.event.event_id), str(doc.event_id)]
    assert listed.data[1] == {
        "organization_id": str(front.event.organization_id),
        "event_id": str(doc.event_id),
        "name": "Test night",
        "state": "live",
        "config_version": loaded.data["config_version"],
        "shard": shard_of(doc.event_id, SHARDS),
        "sale_start": None,
        "sale_end": None,
    }


async def test_an_event_is_made_from_a_plan(front: FrontEnd) -> None:
    layout_id = await layout_of(front)
    plan = plan_on(layout_id, overrides={"zone_overrides": {"floor": {"capacity": 4}}})

    loaded = await load(front, plan)

    assert (loaded.status, loaded.data["result"]) == (201, "created")
    (version,) = (await front.call("GET", "/api/admin/layouts", role=Role.ADMIN)).data
    assert version["events_on_sale"] == 1
    facts = await front.call("GET", f"/api/events/{plan['event_id']}")
    assert [(zone["zone_id"], zone["capacity"]) for zone in facts.data["zones"]] == [("floor", 4)]
    wish = {"quantities": [{"zone_id": "floor", "quantity": 5}]}
    full = await front.call("POST", f"/api/events/{plan['event_id']}/holds", wish)
    assert full.error == "block_at_capacity"


async def test_a_changed_document_replaces_what_may_change(front: FrontEnd) -> None:
    doc = document(floor=50)
    assert (await load(front, doc)).status == 201
    floor = msgspec.structs.replace(doc.zones[1], capacity=60)
    changed = msgspec.structs.replace(doc, name="Other night", zones=(doc.zones[0], floor))

    again, later = await load(front, doc), await load(front, changed)

    assert (again.status, again.data["result"]) == (200, "unchanged")
    assert (later.status, later.data["result"], later.data["name"]) == (200, "changed", "Other night")
    facts = await front.call("GET", f"/api/events/{doc.event_id}")
    assert (facts.data["name"], facts.data["zones"][1]["capacity"]) == ("Other night", 60)


async def test_a_repeat_under_a_key_gets_the_first_answer(front: FrontEnd) -> None:
    doc, key = document(), {"Idempotency-Key": "key-1"}

    first, again = [await load(front, doc, headers=key) for _ in range(2)]
    other = await load(front, document(), headers=key)

    assert (first.status, again.status, again.headers["Idempotency-Replayed"]) == (201, 201, "true")
    assert again.body == first.body
    assert (other.status, other.error) == (422, "hold_id_reused")


async def test_a_change_of_state_is_met_by_the_very_next_hold_of_every_front_end(front: FrontEnd) -> None:
    assert (await front.reserve("A-1")).status == 201
    async with TestClient(TestServer(create_app(front.settings))) as client:
        other = FrontEnd(client, front.settings, front.rig)
        assert (await other.reserve("A-2")).status == 201

        closed = await set_state(front, "closed", notes="The hall is flooded.")

        assert (closed.status, closed.data["state"], closed.data["result"]) == (200, "closed", "changed")
        assert (await other.reserve("A-3")).error == "event_not_available"
        assert (await front.reserve("A-3")).error == "event_not_available"
        assert (await set_state(other, "live")).data["state"] == "live"
        assert (await front.reserve("A-3")).status == 201
    first, *_ = await front.rig.audit("event_changed")
    assert (first["changes"]["state"], first["changes"]["changed_by"]) == ("closed", str(ADMIN))
    assert first["changes"]["notes"] == "The hall is flooded."


async def test_a_state_that_it_has_already_is_unchanged(front: FrontEnd) -> None:
    same = await set_state(front, "live")

    assert (same.status, same.data["result"]) == (200, "unchanged")
    assert same.data["config_version"] == front.event.version


@pytest.mark.parametrize(("state", "error"), [("cancelled", "event_unavailable"), ("archived", "event_not_available")])
async def test_an_event_that_is_over_stays_so(front: FrontEnd, state: str, error: str) -> None:
    assert (await set_state(front, state)).data["state"] == state

    back = await set_state(front, "live")

    assert (back.status, back.error) == (409, "catalogue_conflict")
    assert f"is {state} and stays so" in back.body["detail"]
    assert (await front.reserve("A-1")).error == error


async def test_a_draft_is_put_on_sale(front: FrontEnd) -> None:
    doc = document(state=EventState.DRAFT)
    assert (await load(front, doc)).data["state"] == "draft"
    assert (await reserve(front, doc)).error == "event_not_available"

    assert (await set_state(front, "published", doc.event_id)).status == 200

    assert (await reserve(front, doc)).status == 201


async def test_while_postgres_serves_events_are_loaded_and_changed_there(front: FrontEnd) -> None:
    while True:
        doc = document()
        if shard_of(doc.event_id, SHARDS) == front.rig.shard:
            break
    before = ShardState(Mode.REDIS, FIRST_EPOCH)
    await to_db(front.rig.pool, front.rig.shard, before, Cause("test", "test"))

    loaded = await load(front, doc)

    assert (loaded.status, loaded.data["result"]) == (201, "created")
    assert (await reserve(front, doc)).status == 201
    closed = await set_state(front, "closed", doc.event_id, notes="Enough.")
    assert closed.data["result"] == "changed"
    assert (await reserve(front, doc, "A-2")).error == "event_not_available"
    (audit,) = await front.rig.audit("event_changed")
    assert (audit["changes"]["state"], audit["changes"]["changed_by"]) == ("closed", str(ADMIN))
    assert audit["changes"]["notes"] == "Enough."
    assert (await set_state(front, "live", doc.event_id)).status == 200
    assert (await reserve(front, doc, "A-2")).status == 201


async def test_catalogue_conflict_for_other_seats_changes_nothing(front: FrontEnd) -> None:
    assert (await front.reserve("A-1")).status == 201
    before = await front.rig.contents()
    other = msgspec.structs.replace(document(rows=2), event_id=front.event.event_id)

    refused = await load(front, other)

    assert (refused.status, refused.error) == (409, "catalogue_conflict")
    assert "zones[0].seats" in refused.body["detail"]
    assert await front.rig.contents() == before


async def test_catalogue_conflict_for_sold_seats_that_redis_does_not_know(front: FrontEnd) -> None:
    doc = document()
    await front.rig.save(compile_event(front.event.organization_id, doc))
    await front.rig.execute("UPDATE seats SET status = 'sold' WHERE event_id = $1 AND ordinal = 0", doc.event_id)

    refused = await load(front, doc)

    assert (refused.status, refused.error) == (409, "catalogue_conflict")
    assert "rebuilt" in refused.body["detail"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"zones": []}, "$.zones"),
    ({"state": "open"}, "$.state"),
    ({"event_id": "1"}, "$.event_id"),
    ({"sale_start": "0001-01-01T00:00:00+14:00"}, "sale_start"),
    ({"sale_end": "9999-12-31T23:59:59-14:00"}, "sale_end"),
    ({"organization_id": str(uuid4())}, "organization_id"),
    ({"blocked_seat_ids": ["Z-9"]}, "blocked_seat_ids"),
]


@pytest.mark.parametrize(("changes", "place"), BAD, ids=[place for _, place in BAD])
async def test_invalid_request_names_the_place(still: FrontEnd, changes: dict[str, Any], place: str) -> None:
    event = {**msgspec.to_builtins(document()), **changes}
    before = await still.rig.on.dump()

    refused = await load(still, event)

    assert (refused.status, refused.error) == (400, "invalid_request")
    assert place in refused.body["detail"]
    assert await still.rig.on.dump() == before
    assert len((await still.call("GET", "/api/admin/events", role=Role.ADMIN)).data) == 1


async def test_invalid_request_for_a_plan_that_its_layout_or_policy_does_not_allow(front: FrontEnd) -> None:
    layout_id = await layout_of(front)
    policy = {"values": {"max_seats_per_booking": 6}, "mandatory": ["max_seats_per_booking"]}
    assert (await front.call("PUT", "/api/admin/policies", policy, role=Role.ADMIN)).status == 200

    unknown = await load(front, plan_on(layout_id, overrides={"disabled_zones": ["pit"]}))
    against = await load(front, plan_on(layout_id, seating_overrides={"max_seats_per_booking": 9}))
    version = await load(front, plan_on(layout_id, layout={"layout_id": layout_id}))
    state = await set_state(front, "open")

    assert {reply.error for reply in (unknown, against, version, state)} == {"invalid_request"}
    assert "overrides.disabled_zones" in unknown.body["detail"]
    assert "max_seats_per_booking" in against.body["detail"]
    assert "$.layout" in version.body["detail"]


async def test_not_found_for_a_layout_of_nobody_and_of_others(front: FrontEnd) -> None:
    layout_id = await layout_of(front)

    nobodys = await load(front, plan_on(str(uuid4())))
    others = await load(front, plan_on(layout_id), org=uuid4())

    assert (nobodys.status, nobodys.error) == (others.status, others.error) == (404, "not_found")
    assert "layout" in others.body["detail"]


async def test_another_organisation_can_neither_see_nor_change_an_event(front: FrontEnd) -> None:
    assert (await front.reserve("A-1")).status == 201
    before, others = await front.rig.contents(), {"org": uuid4(), "role": Role.ADMIN}

    taken = await load(front, msgspec.structs.replace(front.event.document, name="Ours now"), **others)

    assert (taken.status, taken.error) == (404, "event_not_found")
    assert (await set_state(front, "closed", **others)).error == "event_not_found"
    assert (await front.call("GET", "/api/admin/events", **others)).data == []
    assert await front.rig.contents() == before


@pytest.mark.parametrize("role", [Role.CUSTOMER, Role.SCANNER, Role.SERVICE])
async def test_forbidden(front: FrontEnd, role: Role) -> None:
    for reply in (
        await load(front, document(), role=role),
        await set_state(front, "closed", role=role),
        await front.call("GET", "/api/admin/events", role=role),
    ):
        assert (reply.status, reply.error) == (403, "forbidden")


async def test_unavailable_while_the_shard_is_closed_and_repeated_afterwards(front: FrontEnd) -> None:
    opened = log_keys(front.event).key("open")
    value = await front.rig.redis.get(opened)
    await front.rig.redis.delete(opened)

    refused = await set_state(front, "closed")

    assert (refused.status, refused.error) == (503, "unavailable")
    assert int(refused.headers["Retry-After"]) >= 1
    await front.rig.redis.set(opened, value)
    assert (await set_state(front, "closed")).status == 200
    assert (await front.reserve("A-1")).error == "event_not_available"


async def test_unknown_outcome_while_nothing_is_persisted(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, persist=False) as front:
        unknown = await set_state(front, "closed")

        assert (unknown.status, unknown.error) == (503, "unknown_outcome")
        await front.rig.drain()
        assert (await set_state(front, "closed")).data["result"] == "unchanged"
