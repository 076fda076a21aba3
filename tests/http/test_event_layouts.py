"""The plan of an event: what a page keeps while seats come and go."""

from datetime import date
from uuid import uuid4

import msgspec

from holdfast.engine.access import AccessMode
from holdfast.engine.layout import Coordinates, EventDocument, EventState, GroupType, SeatGroupDocument, compile_event
from holdfast.http.event_layouts import EventLayouts
from support.engine import document
from support.front_end import FrontEnd, serving

GUEST = uuid4()


def path(front: FrontEnd, rest: str = "/layout") -> str:
    return f"/api/events/{front.event.event_id}{rest}"


def planned() -> EventDocument:
    """Two days, a seat with a position, a family block, and a floor for members with prices and a guest list."""
    doc = document(days=(date(2026, 7, 3), date(2026, 7, 4)))
    first, *others = doc.zones[0].seats
    orchestra = msgspec.structs.replace(
        doc.zones[0], seats=(msgspec.structs.replace(first, coordinates=Coordinates(1.5, 2)), *others)
    )
    floor = msgspec.structs.replace(
        doc.zones[1],
        access_mode=AccessMode.MEMBERSHIP_TIER,
        membership_tier="gold",
        pricing_rule_id="members",
        whitelist=frozenset({GUEST}),
    )
    group = SeatGroupDocument(GroupType.FAMILY_BLOCK, ("A-1", "A-2"))
    return msgspec.structs.replace(doc, zones=(orchestra, floor), seat_groups=(group,))


async def test_the_layout_has_zones_seats_positions_groups_and_days(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, planned()) as front:
        reply = await front.call("GET", path(front))

    orchestra, floor = reply.data["zones"]
    assert (reply.data["days"], len(orchestra["seats"])) == (["2026-07-03", "2026-07-04"], 30)
    assert orchestra["seats"][0]["coordinates"] == {"x": 1.5, "y": 2.0}
    assert reply.data["seat_groups"] == [{"group_type": "family_block", "seat_ids": ["A-1", "A-2"]}]
    assert floor == {
        "zone_id": "floor",
        "name": "Floor",
        "zone_type": "ga_standing",
        "capacity": 50,
        "access_mode": "membership_tier",
        "membership_tier": "gold",
        "pricing_rule_id": "members",
    }
    assert str(GUEST) not in str(reply)


async def test_a_layout_that_is_known_is_not_sent_again_though_seats_were_taken(front: FrontEnd) -> None:
    first = await front.call("GET", path(front))
    assert first.headers["Cache-Control"] == "private, no-cache"
    await front.reserve("A-1")

    again = await front.call("GET", path(front), headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status, again.body) == (304, b"")


async def test_a_layout_named_by_its_version_may_be_kept_for_good(front: FrontEnd) -> None:
    version = (await front.call("GET", path(front, ""))).data["layout_version"]

    reply = await front.call("GET", path(front, f"/layout?version={version}"))
    other = await front.call("GET", path(front, "/layout?version=older"))

    assert (reply.status, reply.headers["Cache-Control"]) == (200, "private, max-age=31536000, immutable")
    assert (other.data, other.headers["Cache-Control"]) == (reply.data, "private, no-cache")
    assert reply.headers["ETag"] == other.headers["ETag"] == f'"{version}"'


def test_the_version_of_a_layout_outlives_a_change_of_state() -> None:
    organization, doc, layouts = uuid4(), document(), EventLayouts(max_events=1)
    live, closed = (
        compile_event(organization, msgspec.structs.replace(doc, state=state))
        for state in (EventState.LIVE, EventState.CLOSED)
    )

    assert live.version != closed.version
    assert layouts.of(live) == layouts.of(closed)
    assert layouts.of(live).version != layouts.of(compile_event(organization, document(floor=49))).version


async def test_a_query_that_is_not_understood_is_refused(front: FrontEnd) -> None:
    assert (await front.call("GET", path(front, "/layout?colour=red"))).status == 400
