"""Zones that are not for everybody."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.access import AccessMode
from holdfast.engine.epochs import Mode
from holdfast.engine.policy import Policy
from holdfast.http.tokens import Role
from support.engine import document
from support.front_end import FrontEnd, serving

VRIENDINNE = "voelgoed_vriendinne"
LISTED = uuid4()


def restricted(**rule: Any) -> Any:
    """The usual event, its seats for some people only."""
    doc = document()
    orchestra, *others = doc.zones
    return msgspec.structs.replace(doc, zones=(msgspec.structs.replace(orchestra, **rule), *others))


@pytest.fixture(params=[Mode.REDIS, Mode.DB])
async def lounge(redis_url: str, database_dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[FrontEnd]:
    rule = {"access_mode": AccessMode.MEMBERSHIP_TIER, "membership_tier": VRIENDINNE, "whitelist": frozenset({LISTED})}
    async with serving(redis_url, database_dsn, restricted(**rule), mode=request.param) as front:
        yield front


async def hold(front: FrontEnd, body: dict[str, Any], **who: Any) -> Any:
    return await front.call("POST", f"/api/events/{front.event.event_id}/holds", body, **who)


async def test_a_vriendinne_reserves_in_the_members_zone(lounge: FrontEnd) -> None:
    assert (await lounge.reserve("A-1", tier=VRIENDINNE)).status == 201


@pytest.mark.parametrize("tier", ["", "gold"])
async def test_somebody_else_is_refused_with_the_reason_and_nothing_is_held(lounge: FrontEnd, tier: str) -> None:
    refused = await lounge.reserve("A-1", tier=tier)

    assert (refused.status, refused.error) == (403, "access_denied")
    assert refused.body["detail"] == f"This zone is for members of {VRIENDINNE}."
    assert refused.body["zones"] == [lounge.event.zones[0].document.zone_id]
    assert await lounge.rig.fetch("SELECT FROM seat_holds") == []


async def test_somebody_who_is_listed_reserves_without_being_a_member(lounge: FrontEnd) -> None:
    assert (await lounge.reserve("A-1", user=LISTED)).status == 201


async def test_the_best_seats_of_a_members_zone_are_for_members(lounge: FrontEnd) -> None:
    best = {"best_available": {"zone_id": lounge.event.zones[0].document.zone_id, "count": 1}}

    assert (await hold(lounge, best)).status == 403
    assert (await hold(lounge, best, tier=VRIENDINNE)).status == 201


async def test_a_booking_for_friends_needs_each_friend_entitled_or_listed(lounge: FrontEnd) -> None:
    member, stranger = uuid4(), uuid4()
    await lounge.call("PUT", f"/api/admin/members/{member}", {"tier": VRIENDINNE}, role=Role.ADMIN)
    seats = ["A-1", "A-2", "A-3"]

    alone = await hold(lounge, {"seats": seats}, tier=VRIENDINNE)
    with_stranger = await hold(lounge, {"seats": seats, "guests": [str(member), str(stranger)]}, tier=VRIENDINNE)
    with_friends = await hold(lounge, {"seats": seats, "guests": [str(member), str(LISTED)]}, tier=VRIENDINNE)

    assert (alone.status, alone.error) == (403, "access_denied")
    assert (with_stranger.status, with_stranger.error) == (403, "access_denied")
    assert str(stranger) in with_stranger.body["detail"]
    assert with_friends.status == 201


async def test_a_zone_for_roles(redis_url: str, database_dsn: str) -> None:
    rule = {"access_mode": AccessMode.ROLE_BASED, "allowed_roles": frozenset({"organizer"})}
    async with serving(redis_url, database_dsn, restricted(**rule)) as front:
        assert (await front.reserve("A-1")).status == 403
        assert (await front.reserve("A-1", role=Role.ORGANIZER)).status == 201


async def test_a_zone_for_people_on_its_list(redis_url: str, database_dsn: str) -> None:
    rule = {"access_mode": AccessMode.WHITELIST, "whitelist": frozenset({LISTED})}
    async with serving(redis_url, database_dsn, restricted(**rule)) as front:
        assert (await front.reserve("A-1", role=Role.ADMIN)).status == 403
        assert (await front.reserve("A-1", user=LISTED)).status == 201


@pytest.mark.parametrize("mode", [Mode.REDIS, Mode.DB])
async def test_where_the_system_chooses_seats_a_selection_is_answered_with_the_best_cluster(
    redis_url: str, database_dsn: str, mode: Mode
) -> None:
    doc = msgspec.structs.replace(document(), policy=Policy(prefer_clustering_over_selection=True))
    async with serving(redis_url, database_dsn, doc, mode=mode) as front:
        named = await hold(front, {"seats": ["C-2", "B-7", "A-9"]})
        best = await hold(front, {"best_available": {"zone_id": front.event.zones[0].document.zone_id, "count": 2}})
        mixed = await hold(front, {"seats": ["C-2"], "quantities": [{"zone_id": "floor", "quantity": 1}]})
        one = await front.reserve("A-1")

    assert (named.status, [seat["seat_id"] for seat in named.data["seats"]]) == (201, ["A-1", "A-2", "A-3"])
    assert "counter_offer" not in named.data
    assert (best.status, [seat["seat_id"] for seat in best.data["seats"]]) == (201, ["A-4", "A-5"])
    # A call for one seat by its address, or for seats together with places, cannot be answered with others.
    assert (mixed.status, mixed.error) == (403, "selection_not_offered")
    assert (one.status, one.error) == (403, "selection_not_offered")
