"""Counter-offers over HTTP: the nearest equivalent block, named or held, in the same call as the refusal."""

import asyncio
from uuid import uuid4

import msgspec

from holdfast.engine.access import AccessMode
from holdfast.engine.layout import EventDocument
from support.drawn import drawn_event
from support.engine import UNLIMITED
from support.front_end import FrontEnd, Reply, serving

STRICT = msgspec.structs.replace(UNLIMITED, orphan_avoidance_strict=True, group_adjacency_strict=True)


async def hold(front: FrontEnd, body: object, **options: object) -> Reply:
    return await front.call("POST", f"/api/events/{front.event.event_id}/holds", body, **options)


def seat_ids(reply: Reply) -> list[str]:
    return [seat["seat_id"] for seat in reply.data["seats"]]


async def test_a_refusal_names_the_nearest_block_and_holds_nothing(front: FrontEnd) -> None:
    await hold(front, {"seats": ["B-5", "B-6"]}, user=uuid4())

    plain = await hold(front, {"seats": ["B-6", "B-7"]})
    reply = await hold(front, {"seats": ["B-6", "B-7"], "counter_offer": "propose"})

    assert (reply.status, reply.error, reply.body["seats"]) == (409, "seat_held_by_another_user", ["B-6"])
    assert reply.body["counter_offer"] == ["B-7", "B-8"]
    assert "counter_offer" not in plain.body
    assert len(await front.rig.fetch("SELECT * FROM seat_holds")) == 2
    assert (await hold(front, {"seats": reply.body["counter_offer"]})).status == 201


async def test_the_nearest_block_is_held_if_the_request_says_so(front: FrontEnd) -> None:
    await hold(front, {"seats": ["B-5", "B-6"]}, user=uuid4())

    reply = await hold(front, {"seats": ["B-5", "B-6"], "counter_offer": "hold", "cart_token": "cart"})

    assert (reply.status, seat_ids(reply), reply.data["counter_offer"]) == (201, ["B-3", "B-4"], True)
    assert reply.data["message"].startswith("What you asked for is not to be had. These are the nearest seats")
    rows = await front.rig.fetch("SELECT cart_token FROM seat_holds WHERE hold_id = $1", reply.data["hold_id"])
    assert [row["cart_token"] for row in rows] == ["cart", "cart"]


async def test_what_is_to_be_had_is_held_as_named(front: FrontEnd) -> None:
    reply = await hold(front, {"seats": ["B-5", "B-6"], "counter_offer": "hold"})

    assert (reply.status, seat_ids(reply)) == (201, ["B-5", "B-6"])
    assert "counter_offer" not in reply.data


async def test_a_repeat_under_the_same_key_gets_the_same_offer(front: FrontEnd) -> None:
    await hold(front, {"seats": ["A-1"]}, user=uuid4())
    body, key = {"seats": ["A-1", "A-2"], "counter_offer": "hold"}, {"Idempotency-Key": "offer"}

    replies = await asyncio.gather(*(hold(front, body, headers=key) for _ in range(5)))

    assert {reply.status for reply in replies} == {201}
    assert {tuple(seat_ids(reply)) for reply in replies} == {("A-2", "A-3")}
    assert all(reply.data["counter_offer"] for reply in replies)
    assert len(await front.rig.fetch("SELECT * FROM seat_holds")) == 3


async def test_a_selection_that_leaves_an_orphan_is_offered_one_that_does_not(
    redis_url: str, database_dsn: str
) -> None:
    async with serving(redis_url, database_dsn, drawn_event([".....|....."], STRICT)) as front:
        reply = await hold(front, {"seats": ["0-2-2", "0-2-3"], "counter_offer": "propose"})

    assert (reply.error, reply.body["seats"]) == ("leaves_orphan", ["0-2-1"])
    assert reply.body["counter_offer"] == ["0-2-1", "0-2-2"]


def priced(*drawings: str, prices: tuple[str, ...], private: int | None = None) -> EventDocument:
    """An event with zones of these prices, one of them for listed people only."""
    drawn = drawn_event(drawings, STRICT)
    zones = tuple(
        msgspec.structs.replace(
            zone,
            pricing_rule_id=price,
            access_mode=AccessMode.WHITELIST if index == private else AccessMode.PUBLIC,
        )
        for index, (zone, price) in enumerate(zip(drawn.zones, prices, strict=True))
    )
    return msgspec.structs.replace(drawn, zones=zones)


async def test_a_refused_allocation_is_offered_a_zone_of_the_same_type_and_price(
    redis_url: str, database_dsn: str
) -> None:
    event = priced("h.h", "....", "....", "....", prices=("gold", "silver", "gold", "gold"), private=2)
    async with serving(redis_url, database_dsn, event) as front:
        best = {"best_available": {"zone_id": "zone-0", "count": 2}}
        proposal = await hold(front, {**best, "counter_offer": "propose"})
        taken = await hold(front, {**best, "counter_offer": "hold"})

    # The second zone has another price, and the third is not for this buyer.
    assert (proposal.status, proposal.error) == (409, "no_available_seats")
    assert proposal.body["counter_offer"] == ["3-1-1", "3-1-2"]
    assert (taken.status, seat_ids(taken), taken.data["counter_offer"]) == (201, ["3-1-1", "3-1-2"], True)


async def test_where_nothing_is_equivalent_the_refusal_is_all_there_is(redis_url: str, database_dsn: str) -> None:
    event = priced("h.h", "....", prices=("gold", "silver"))
    async with serving(redis_url, database_dsn, event) as front:
        for wish in ({"best_available": {"zone_id": "zone-0", "count": 2}}, {"seats": ["0-1-1", "0-1-2"]}):
            for kind in ("propose", "hold"):
                reply = await hold(front, {**wish, "counter_offer": kind})

                assert reply.status == 409
                assert "counter_offer" not in reply.body


async def test_there_is_no_counter_offer_of_places(front: FrontEnd) -> None:
    wish = {"quantities": [{"zone_id": "floor", "quantity": 1}], "counter_offer": "hold"}

    assert (await hold(front, wish)).status == 400
    assert (await hold(front, {"seats": ["A-1"], "counter_offer": "maybe"})).status == 400
