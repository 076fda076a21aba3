"""The catalogue over HTTP: venues, layouts, the policy and members."""

from typing import Any
from uuid import uuid4

import pytest

from holdfast.http.tokens import Role
from support.front_end import FrontEnd, Reply

ADMIN = Role.ADMIN


def hall(venue_id: str, **members: Any) -> dict[str, Any]:
    seats = [{"seat_id": f"A-{number}", "row": "A", "number": number} for number in (1, 2, 3)]
    zones = [{"zone_id": "stalls", "zone_type": "reserved_seating", "name": "Stalls", "capacity": 3, "seats": seats}]
    return {"venue_id": venue_id, "name": "Main Hall", "zones": zones, **members}


async def add_venue(front: FrontEnd, **who: Any) -> str:
    added = await front.call("POST", "/api/admin/venues", {"name": "Hall"}, **{"role": ADMIN, **who})
    assert added.status == 201, added
    return str(added.data["venue_id"])


async def save(front: FrontEnd, layout_id: object, document: object, **who: Any) -> Reply:
    return await front.call("PUT", f"/api/admin/layouts/{layout_id}", document, **{"role": ADMIN, **who})


async def test_a_venue_is_added_and_found(front: FrontEnd) -> None:
    venue_id = await add_venue(front)

    listed = await front.call("GET", "/api/admin/venues", role=ADMIN)
    found = await front.call("GET", f"/api/admin/venues/{venue_id}", role=ADMIN)

    assert found.data == {"venue_id": venue_id, "name": "Hall", "address": ""}
    assert found.data in listed.data


async def test_a_venue_is_added_once_under_a_key(front: FrontEnd) -> None:
    key, hall = {"Idempotency-Key": "key-1"}, {"name": "Hall"}

    first, again = [await front.call("POST", "/api/admin/venues", hall, headers=key, role=ADMIN) for _ in range(2)]
    other = await front.call("POST", "/api/admin/venues", {"name": "Other"}, headers=key, role=ADMIN)

    assert (again.status, again.body, again.headers["Idempotency-Replayed"]) == (201, first.body, "true")
    assert (other.status, other.error) == (422, "hold_id_reused")
    assert len((await front.call("GET", "/api/admin/venues", role=ADMIN)).data) == 1


async def test_a_venue_id_is_taken_by_what_is_there(front: FrontEnd) -> None:
    venue_id = await add_venue(front)
    wish = {"name": "Other", "venue_id": venue_id}

    ours = await front.call("POST", "/api/admin/venues", wish, role=ADMIN)
    others = await front.call("POST", "/api/admin/venues", wish, role=ADMIN, org=uuid4())

    assert (ours.status, ours.error) == (409, "catalogue_conflict")
    assert (others.status, others.error) == (404, "not_found")


async def test_a_layout_gets_versions_that_stay(front: FrontEnd) -> None:
    layout_id, document = uuid4(), hall(await add_venue(front))

    first = await save(front, layout_id, document)
    again = await save(front, layout_id, document)
    second = await save(front, layout_id, {**document, "name": "Rebuilt"})

    assert [each.data["version"] for each in (first, again, second)] == [1, 1, 2]
    path = f"/api/admin/layouts/{layout_id}"
    assert (await front.call("GET", path, role=ADMIN)).data["layout"]["name"] == "Rebuilt"
    assert (await front.call("GET", f"{path}?version=1", role=ADMIN)).data["layout"]["name"] == "Main Hall"
    assert (await front.call("GET", f"{path}?version=3", role=ADMIN)).status == 404
    listed = await front.call("GET", "/api/admin/layouts", role=ADMIN)
    assert [(each["version"], each["total_capacity"]) for each in listed.data] == [(1, 3), (2, 3)]


BAD_DOCUMENTS = [
    ({"zones[0].seats": [{"seat_id": "A-1", "row": "A", "number": n} for n in (1, 2, 3)]}, "zones[0].seats[1].seat_id"),
    ({"zones[0].capacity": 4}, "zones[0].capacity"),
    ({"zones[0].access_mode": "membership_tier"}, "zones[0].membership_tier"),
    ({"zones[0].access_mode": "role_based"}, "zones[0].allowed_roles"),
    (
        {
            "zones[0].seats": [
                {"seat_id": "A-1", "row": "A", "number": 1, "category": "wheelchair", "companion_seat_ids": ["Z"]}
            ],
            "zones[0].capacity": 1,
        },
        "zones[0].seats[0].companion_seat_ids",
    ),
    (
        {
            "zones[0].seats": [
                {"seat_id": f"A-{n}", "row": "A", "number": n, "coordinates": {"x": 1, "y": 1}} for n in (1, 2, 3)
            ]
        },
        "zones[0].seats[1].coordinates",
    ),
    ({"zones[0].zone_type": "balcony"}, "$.zones[0].zone_type"),
    ({"zones[0].seats": [{"seat_id": "A-1", "row": "A", "number": "one"}]}, "$.zones[0].seats[0].number"),
    ({"seat_groups": [{"group_type": "family_block", "seat_ids": ["A-1", "B-1"]}]}, "seat_groups[0].seat_ids"),
    ({"total_capacity": 950}, "total_capacity"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("changes", "place"), BAD_DOCUMENTS, ids=[place for _, place in BAD_DOCUMENTS])
async def test_a_bad_layout_is_refused_with_its_place_and_not_stored(
    front: FrontEnd, changes: dict[str, Any], place: str
) -> None:
    document = hall(await add_venue(front))
    for path, value in changes.items():
        target = document["zones"][0] if path.startswith("zones[0].") else document
        target[path.removeprefix("zones[0].")] = value

    refused = await save(front, uuid4(), document)

    assert (refused.status, refused.error) == (400, "invalid_request")
    assert place in refused.body["detail"]
    assert await front.rig.fetch("SELECT FROM layouts") == []


async def test_a_layout_of_an_unknown_venue_is_refused(front: FrontEnd) -> None:
    refused = await save(front, uuid4(), hall(str(uuid4())))

    assert (refused.status, refused.error) == (404, "not_found")
    assert "venue_id" in refused.body["detail"]


async def test_another_organisation_sees_nothing_of_it(front: FrontEnd) -> None:
    venue_id, layout_id = await add_venue(front), uuid4()
    await save(front, layout_id, hall(venue_id))
    others: dict[str, Any] = {"role": ADMIN, "org": uuid4()}

    assert (await front.call("GET", "/api/admin/venues", **others)).data == []
    assert (await front.call("GET", "/api/admin/layouts", **others)).data == []
    assert (await front.call("GET", f"/api/admin/venues/{venue_id}", **others)).status == 404
    assert (await front.call("GET", f"/api/admin/layouts/{layout_id}", **others)).status == 404
    assert (await save(front, layout_id, hall(venue_id), **others)).status == 404


async def test_a_policy_is_stored_and_read(front: FrontEnd) -> None:
    policy = {"values": {"orphan_avoidance_strict": True}, "mandatory": ["orphan_avoidance_strict"]}

    assert (await front.call("GET", "/api/admin/policies", role=ADMIN)).status == 404
    stored = await front.call("PUT", "/api/admin/policies", policy, role=ADMIN)
    found = await front.call("GET", "/api/admin/policies", role=ADMIN)

    assert stored.status == found.status == 200
    assert found.data == stored.data
    assert found.data["values"]["orphan_avoidance_strict"] is True
    assert found.data["mandatory"] == ["orphan_avoidance_strict"]


async def test_a_bad_policy_is_refused_with_its_place(front: FrontEnd) -> None:
    unknown = await front.call("PUT", "/api/admin/policies", {"mandatory": ["be_nice"]}, role=ADMIN)
    outside = await front.call("PUT", "/api/admin/policies", {"values": {"max_group_split": -1}}, role=ADMIN)

    assert (unknown.status, outside.status) == (400, 400)
    assert "there is no rule 'be_nice'" in unknown.body["detail"]
    assert "$.values.max_group_split" in outside.body["detail"]


async def test_a_member_comes_and_goes(front: FrontEnd) -> None:
    path = f"/api/admin/members/{uuid4()}"

    assert (await front.call("GET", path, role=ADMIN)).status == 404
    assert (await front.call("PUT", path, {"tier": "gold"}, role=ADMIN)).data["tier"] == "gold"
    assert (await front.call("GET", path, role=ADMIN)).data["tier"] == "gold"
    assert (await front.call("GET", path, role=ADMIN, org=uuid4())).status == 404
    assert (await front.call("DELETE", path, role=ADMIN, org=uuid4())).status == 404
    assert (await front.call("DELETE", path, role=ADMIN)).status == 200
    assert (await front.call("DELETE", path, role=ADMIN)).status == 404


@pytest.mark.parametrize("path", ["venues", "layouts", "policies", "members/6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10"])
async def test_the_catalogue_is_not_for_buyers(front: FrontEnd, path: str) -> None:
    refused = await front.call("GET", f"/api/admin/{path}")

    assert (refused.status, refused.error) == (403, "forbidden")


async def test_the_character_nul_is_refused_wherever_it_stands(front: FrontEnd) -> None:
    venue_id = await add_venue(front)
    user, venues = f"/api/admin/members/{uuid4()}", "/api/admin/venues"
    layout, events = f"/api/admin/layouts/{uuid4()}", "/api/admin/events"
    event = {"event_id": str(uuid4()), "name": "a\0b", "zones": hall(venue_id)["zones"]}
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", venues, {"name": "a\0b"}),
        ("POST", venues, {"name": "Hall", "address": "\0"}),
        ("POST", venues, {"name": "\\\0"}),
        ("PUT", layout, hall(venue_id, description="\0")),
        ("PUT", user, {"tier": "gold\0"}),
        ("POST", events, event),
    ]

    for method, path, body in cases:
        refused = await front.call(method, path, body, role=ADMIN)

        assert (refused.status, refused.error) == (400, "invalid_request"), path
    assert len((await front.call("GET", venues, role=ADMIN)).data) == 1
    assert (await front.call("GET", layout, role=ADMIN)).status == 404
    assert (await front.call("GET", user, role=ADMIN)).status == 404


async def test_a_backslash_before_zeros_is_text(front: FrontEnd) -> None:
    added = await front.call("POST", "/api/admin/venues", {"name": r"Hall \u0000"}, role=ADMIN)

    assert (added.status, added.data["name"]) == (201, r"Hall \u0000")
