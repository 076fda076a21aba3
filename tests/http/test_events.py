"""Reading events, their occupancy and their seats."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.layout import EventState
from holdfast.http.tokens import Role
from support.engine import document
from support.front_end import FrontEnd, serving
from support.outbox import publishing
from support.polling import eventually
from support.scripts import held, pairs, places_held, sell

PATHS = ("", "/layout", "/occupancy", "/seats", "/seats?format=map", "/seats/A-1", "/live")


def path(front: FrontEnd, rest: str = "") -> str:
    return f"/api/events/{front.event.event_id}{rest}"


async def test_an_event_is_described_with_its_zones_and_totals(front: FrontEnd) -> None:
    await front.reserve("A-1")

    reply = await front.call("GET", path(front))

    assert reply.status == 200
    assert reply.headers["Cache-Control"] == "no-store"
    totals = reply.data.pop("totals")
    assert reply.data.pop("layout_version")
    assert reply.data == {
        "event_id": str(front.event.event_id),
        "name": "Test night",
        "state": "live",
        "sale_start": None,
        "sale_end": None,
        "days": [],
        "config_version": front.event.version,
        "zones": [
            {
                "zone_id": "orchestra",
                "name": "Orchestra",
                "zone_type": "reserved_seating",
                "capacity": 30,
                "seats": 30,
            },
            {"zone_id": "floor", "name": "Floor", "zone_type": "ga_standing", "capacity": 50, "seats": 0},
        ],
    }
    assert (totals["available"], totals["held"], totals["total"]) == (79, 1, 80)


async def test_the_sale_window_is_told(redis_url: str, database_dsn: str) -> None:
    opens, closes = datetime(2026, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
    async with serving(redis_url, database_dsn, document(sale_start=opens, sale_end=closes)) as front:
        facts = (await front.call("GET", path(front))).data

    assert (facts["sale_start"], facts["sale_end"]) == ("2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z")


async def test_occupancy_has_shares_in_percent_by_zone(front: FrontEnd) -> None:
    on = front.rig.on
    await sell(on, await held(on, "A-1", "A-2", "A-3"))
    await places_held(on, 5)
    await on.backend.block_seats(on.event, seats=pairs(on, "B-1"))
    await front.reserve("B-2")

    reply = await front.call("GET", path(front, "/occupancy"))

    assert reply.status == 200
    orchestra, floor = reply.data["zones"]
    assert (orchestra["zone_id"], floor["name"]) == ("orchestra", "Floor")
    assert [orchestra[key] for key in ("available", "held", "sold", "blocked", "total")] == [25, 1, 3, 1, 30]
    assert (orchestra["percent_sold"], orchestra["percent_available"], floor["percent_held"]) == (10.0, 83.3, 10.0)
    assert [reply.data[key] for key in ("available", "held", "sold", "blocked", "total")] == [70, 6, 3, 1, 80]


async def test_occupancy_is_remembered_until_a_change_is_announced(front: FrontEnd) -> None:
    async def held_now() -> int:
        reply = await front.call("GET", path(front, "/occupancy"))
        count: int = reply.data["held"]
        return count

    assert await held_now() == 0
    await front.reserve("A-1")
    assert await held_now() == 0
    async with publishing(front.settings):
        await eventually(held_now, "the change is heard of")

    assert await held_now() == 1


async def test_seats_are_listed_in_the_order_of_the_layout(front: FrontEnd) -> None:
    on = front.rig.on
    await sell(on, await held(on, "A-2"))
    await held(on, "A-1")
    await on.backend.block_seats(on.event, seats=pairs(on, "C-10"))

    reply = await front.call("GET", path(front, "/seats"))

    assert reply.status == 200
    assert reply.data["event_id"] == str(front.event.event_id)
    assert reply.data["config_version"] == front.event.version
    seats = reply.data["seats"]
    assert [seat["seat_id"] for seat in seats] == list(front.event.seats)
    assert seats[0] == {
        "seat_id": "A-1",
        "zone_id": "orchestra",
        "row": "A",
        "number": 1,
        "category": "standard",
        "status": "held",
    }
    assert (seats[1]["status"], seats[2]["status"], seats[29]["status"]) == ("sold", "available", "blocked")


async def test_the_map_has_a_letter_for_each_seat_of_the_list(front: FrontEnd) -> None:
    on = front.rig.on
    await sell(on, await held(on, "A-10"))
    await held(on, "B-1")

    short = (await front.call("GET", path(front, "/seats?format=map"))).data
    long = (await front.call("GET", path(front, "/seats"))).data

    words = {".": "available", "h": "held", "s": "sold", "b": "blocked"}
    assert [words[letter] for letter in short["map"]] == [seat["status"] for seat in long["seats"]]
    assert short["map"][9:11] == "sh"
    assert short["zones"] == [
        {"zone_id": "orchestra", "offset": 0, "seats": 30},
        {"zone_id": "floor", "offset": 30, "seats": 0},
    ]


async def test_names_that_need_escaping_are_listed_as_they_are(redis_url: str, database_dsn: str) -> None:
    doc = document()
    strange = tuple(
        msgspec.structs.replace(seat, seat_id=f'"{seat.seat_id}\\', row=f'é"{seat.row}') for seat in doc.zones[0].seats
    )
    zones = (msgspec.structs.replace(doc.zones[0], zone_id='z"', seats=strange), doc.zones[1])
    async with serving(redis_url, database_dsn, msgspec.structs.replace(doc, zones=zones)) as front:
        seats = (await front.call("GET", path(front, "/seats"))).data["seats"]
        short = (await front.call("GET", path(front, "/seats?format=map"))).data

    assert (seats[0]["seat_id"], seats[0]["row"], seats[0]["zone_id"]) == ('"A-1\\', 'é"A', 'z"')
    assert short["zones"][0]["zone_id"] == 'z"'


async def test_an_event_of_places_only_has_no_seats(redis_url: str, database_dsn: str) -> None:
    doc = document()
    async with serving(redis_url, database_dsn, msgspec.structs.replace(doc, zones=doc.zones[1:])) as front:
        assert (await front.call("GET", path(front, "/seats"))).data["seats"] == []
        assert (await front.call("GET", path(front, "/seats?format=map"))).data["map"] == ""


@pytest.mark.parametrize("rest", ["/seats", "/seats?format=map"])
async def test_seats_that_have_not_changed_are_not_sent_again(front: FrontEnd, rest: str) -> None:
    first = await front.call("GET", path(front, rest))
    known = {"If-None-Match": first.headers["ETag"]}

    same = await front.call("GET", path(front, rest), headers=known)
    await held(front.rig.on, "A-1")
    changed = await front.call("GET", path(front, rest), headers=known)

    assert (same.status, same.body) == (304, b"")
    assert same.headers["ETag"] == first.headers["ETag"]
    assert changed.status == 200
    assert changed.headers["ETag"] != first.headers["ETag"]


async def test_the_list_and_the_map_have_different_etags(front: FrontEnd) -> None:
    known = {"If-None-Match": (await front.call("GET", path(front, "/seats"))).headers["ETag"]}

    assert (await front.call("GET", path(front, "/seats?format=map"), headers=known)).status == 200


async def test_a_weak_or_listed_etag_counts_too(front: FrontEnd) -> None:
    etag = (await front.call("GET", path(front, "/seats"))).headers["ETag"]

    reply = await front.call("GET", path(front, "/seats"), headers={"If-None-Match": f'"other", W/{etag}'})

    assert reply.status == 304


async def test_a_form_that_does_not_exist_is_refused(front: FrontEnd) -> None:
    reply = await front.call("GET", path(front, "/seats?format=picture"))

    assert (reply.status, reply.error) == (400, "invalid_request")


async def test_a_seat_says_until_when_it_is_held_and_not_by_whom(front: FrontEnd) -> None:
    taken = (await front.reserve("A-1")).data

    reply = await front.call("GET", path(front, "/seats/A-1"), user=uuid4())

    assert reply.status == 200
    assert reply.data == {
        "seat_id": "A-1",
        "event_id": str(front.event.event_id),
        "zone_id": "orchestra",
        "row": "A",
        "number": 1,
        "category": "standard",
        "status": "held",
        "held_until": taken["held_until"],
    }
    free = (await front.call("GET", path(front, "/seats/A-2"))).data
    assert (free["status"], free["held_until"]) == ("available", None)


async def test_a_seat_that_does_not_exist_is_not_found(front: FrontEnd) -> None:
    reply = await front.call("GET", path(front, "/seats/Z-99"))

    assert (reply.status, reply.error) == (404, "seat_not_found")


@pytest.mark.parametrize("rest", PATHS)
async def test_what_is_of_another_organisation_does_not_exist(front: FrontEnd, rest: str) -> None:
    foreign = await front.call("GET", path(front, rest), org=uuid4())
    nowhere = await front.call("GET", f"/api/events/{uuid4()}{rest}")

    assert (foreign.status, foreign.error) == (404, "event_not_found")
    assert foreign.body == nowhere.body


@pytest.mark.parametrize("rest", PATHS)
async def test_reading_needs_a_token_of_any_role(front: FrontEnd, rest: str) -> None:
    nobody = await front.call("GET", path(front, rest), token="")

    assert (nobody.status, nobody.error) == (401, "unauthorized")
    if rest != "/live":
        for role in Role:
            assert (await front.call("GET", path(front, rest), role=role)).status == 200


@pytest.mark.parametrize("rest", PATHS)
async def test_an_event_id_that_is_none_is_refused(front: FrontEnd, rest: str) -> None:
    reply = await front.call("GET", f"/api/events/42{rest}")

    assert (reply.status, reply.error) == (400, "invalid_request")


@pytest.fixture
async def closed(redis_url: str, database_dsn: str) -> AsyncIterator[FrontEnd]:
    """A front end whose event has left Redis."""
    async with serving(redis_url, database_dsn) as front:
        on = front.rig.on
        await on.backend.block_seats(on.event, seats=pairs(on, "A-1"))
        await on.change(state=EventState.CLOSED)
        reply = await on.backend.close_event(on.event)
        assert reply.status.succeeded, reply
        await eventually(
            lambda: front.rig.value("SELECT count(*) FROM audit_log WHERE action = 'event_closed'"), "it is persisted"
        )
        yield front


async def test_the_seats_of_an_event_that_redis_does_not_have_are_those_of_postgres(closed: FrontEnd) -> None:
    reply = await closed.call("GET", path(closed, "/seats?format=map"))

    assert reply.status == 200
    assert reply.data["map"] == "b" + "." * 29
