"""Holding several seats and places over HTTP, and what owners do with their holds."""

import asyncio
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.access import AccessMode
from holdfast.engine.backend import Holder
from holdfast.engine.epochs import Mode
from holdfast.engine.layout import EventState, ZoneDocument, ZoneType
from holdfast.engine.policy import AckRule
from holdfast.engine.status import Status
from holdfast.http.tokens import Role
from support.checking_out import checked_out, complete, forget, reserve
from support.drawn import drawn_event
from support.engine import UNLIMITED, accessible_document
from support.front_end import FrontEnd, Reply, serving, with_limits


async def hold(front: FrontEnd, body: object, **options: object) -> Reply:
    return await front.call("POST", f"/api/events/{front.event.event_id}/holds", body, **options)


async def show(front: FrontEnd, hold_id: str, **options: object) -> Reply:
    return await front.call("GET", f"/api/holds/{hold_id}", **options)


async def test_seats_and_places_are_held_together(front: FrontEnd) -> None:
    wish = {"seats": ["A-1", "A-2"], "quantities": [{"zone_id": "floor", "quantity": 3}], "cart_token": "cart-1"}

    reply = await hold(front, wish)

    assert reply.status == 201
    held = reply.data
    assert [seat["seat_id"] for seat in held["seats"]] == ["A-1", "A-2"]
    assert held["seats"][0] == {"seat_id": "A-1", "block_name": "Orchestra", "row": "A", "seat_number": "1"}
    assert held["quantities"] == [{"zone_id": "floor", "block_name": "Floor", "quantity": 3}]
    assert (held["status"], held["cart_token"], held["durability"]) == ("held", "cart-1", "postgres")
    assert held["expires_in_seconds"] == 600
    rows = await front.rig.fetch("SELECT quantity, cart_token FROM seat_holds ORDER BY line")
    assert [row["quantity"] for row in rows] == [1, 1, 3]
    assert {row["cart_token"] for row in rows} == {"cart-1"}


async def test_one_seat_in_the_way_refuses_all_and_is_named(front: FrontEnd) -> None:
    await front.reserve("A-2")

    reply = await hold(front, {"seats": ["A-1", "A-2", "A-3"]}, user=uuid4())

    assert (reply.status, reply.error, reply.body["seats"]) == (409, "seat_held_by_another_user", ["A-2"])
    assert (await front.reserve("A-1", user=uuid4())).status == 201


async def test_named_seats_that_leave_one_alone_are_refused_with_that_seat(redis_url: str, database_dsn: str) -> None:
    policy = msgspec.structs.replace(UNLIMITED, orphan_avoidance_strict=True)
    async with serving(redis_url, database_dsn, drawn_event(["....."], policy)) as front:
        several = await hold(front, {"seats": ["0-1-2", "0-1-4"]})
        one = await front.reserve("0-1-2")
        fine = await hold(front, {"seats": ["0-1-1", "0-1-2"]})

    assert (several.status, several.error, several.body["seats"]) == (409, "leaves_orphan", ["0-1-1", "0-1-3", "0-1-5"])
    assert (one.status, one.error, one.body["seats"]) == (409, "leaves_orphan", ["0-1-1"])
    assert fine.status == 201


async def test_the_best_available_seats_are_next_to_each_other(front: FrontEnd) -> None:
    await front.reserve("A-2", user=uuid4())

    reply = await hold(front, {"best_available": {"zone_id": "orchestra", "count": 3}})

    assert reply.status == 201
    assert [seat["seat_id"] for seat in reply.data["seats"]] == ["A-3", "A-4", "A-5"]


async def test_the_best_available_places_of_a_zone_without_seats_are_any(front: FrontEnd) -> None:
    reply = await hold(front, {"best_available": {"zone_id": "floor", "count": 3}})

    assert reply.status == 201
    assert reply.data["quantities"] == [{"zone_id": "floor", "block_name": "Floor", "quantity": 3}]


async def test_more_seats_than_a_zone_has_are_not_available(front: FrontEnd) -> None:
    reply = await hold(front, {"best_available": {"zone_id": "orchestra", "count": 31}})

    assert (reply.status, reply.error) == (409, "no_available_seats")


@pytest.mark.parametrize("mode", [Mode.REDIS, Mode.DB])
async def test_a_group_that_is_split_is_told_how(redis_url: str, database_dsn: str, mode: Mode) -> None:
    policy = msgspec.structs.replace(UNLIMITED, max_group_split=3)
    async with serving(redis_url, database_dsn, drawn_event(["h....h|h.h|hh|h.h"], policy), mode=mode) as front:
        reply = await hold(front, {"best_available": {"zone_id": "zone-0", "count": 6}})

    assert reply.status == 201
    assert reply.data["message"].startswith(
        "Your group is split: 4 seats together in row 1, 1 seat in row 2, 1 seat in row 4 (3 rows back). Reserved for"
    )


async def test_the_best_of_zones_in_order_of_preference(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, drawn_event(["..", "..", "...."], UNLIMITED)) as front:
        zones = [{"best_available": {"zones": ["zone-1", "zone-2", "zone-0"], "count": 2}} for _ in range(4)]
        replies = [await hold(front, each, user=uuid4()) for each in zones]

    assert [reply.data["seats"][0]["block_name"] for reply in replies] == ["Zone 1", "Zone 2", "Zone 2", "Zone 0"]
    assert all(reply.data["message"].startswith("Reserved for") for reply in replies)


async def test_the_best_seats_of_a_price_category(redis_url: str, database_dsn: str) -> None:
    drawn = drawn_event(["....", "....", "....", "...."], UNLIMITED)
    prices, listed = ("gold", "silver", "silver", "silver"), AccessMode.WHITELIST
    zones = [
        msgspec.structs.replace(zone, pricing_rule_id=price) for zone, price in zip(drawn.zones, prices, strict=True)
    ]
    zones[1] = msgspec.structs.replace(zones[1], access_mode=listed)
    async with serving(redis_url, database_dsn, msgspec.structs.replace(drawn, zones=tuple(zones))) as front:
        wishes = [
            {"count": 2, "pricing_rule_id": "silver"},
            {"count": 2, "pricing_rule_id": "silver", "zones": ["zone-0", "zone-3"]},
            {"count": 2, "pricing_rule_id": "silver", "zone_id": "zone-1"},
            {"count": 2, "pricing_rule_id": "bronze"},
            {"count": 2, "pricing_rule_id": "silver", "zone_id": "zone-0"},
        ]
        any_silver, named, private, unknown, other = [await hold(front, {"best_available": each}) for each in wishes]

    # Zones that are not for the caller are passed over, unless the caller asks for one of them.
    assert [reply.data["seats"][0]["block_name"] for reply in (any_silver, named)] == ["Zone 2", "Zone 3"]
    assert (private.status, private.error) == (403, "access_denied")
    assert [(reply.status, reply.error) for reply in (unknown, other)] == [(404, "seat_not_found")] * 2


async def test_the_best_seats_of_some_categories(redis_url: str, database_dsn: str) -> None:
    drawn = drawn_event(["i..i", "i.rr", "...."], UNLIMITED)
    floor = ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 50)
    async with serving(redis_url, database_dsn, msgspec.structs.replace(drawn, zones=(*drawn.zones, floor))) as front:
        wishes: list[dict[str, object]] = [
            {"count": 2, "categories": ["restricted_view"]},
            {"count": 1, "categories": ["aisle"], "zone_id": "zone-1"},
            {"count": 2, "categories": ["standard", "aisle"], "zones": ["zone-2", "zone-0"]},
            {"count": 2, "categories": ["aisle"], "zones": ["zone-2", "zone-0"]},
            {"count": 1, "categories": ["restricted_view"], "zones": ["zone-2", "zone-0"]},
            {"count": 1, "categories": ["aisle"], "zone_id": "floor"},
            {"count": 1, "categories": ["restricted_view"]},
        ]
        replies = [await hold(front, {"best_available": each}) for each in wishes]

    assert [[seat["seat_id"] for seat in reply.data["seats"]] for reply in replies[:4]] == [
        ["1-1-3", "1-1-4"],
        ["1-1-1"],
        ["2-1-1", "2-1-2"],
        ["0-1-1", "0-1-4"],
    ]
    assert [(reply.status, reply.error) for reply in replies[4:]] == [
        (404, "seat_not_found"),
        (400, "invalid_request"),
        (409, "no_available_seats"),
    ]


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        # Wheelchair seats are chosen on purpose, and nothing else together with them.
        ({"count": 1, "categories": ["wheelchair"]}, 400),
        ({"count": 1, "categories": ["standard", "companion"]}, 400),
        ({"count": 1, "categories": ["standard"], "accessible": True}, 400),
        ({"count": 2, "categories": ["wheelchair"], "accessible": True}, 400),
        ({"count": 1, "categories": ["companion"], "accessible": True}, 400),
        ({"count": 1, "categories": ["balcony"]}, 400),
        ({"count": 1, "categories": ["wheelchair"], "accessible": True}, 201),
        ({"count": 2, "categories": ["wheelchair", "companion"], "accessible": True}, 201),
    ],
)
async def test_categories_and_accessible_seats(
    redis_url: str, database_dsn: str, wish: dict[str, object], status: int
) -> None:
    async with serving(redis_url, database_dsn, accessible_document()) as front:
        assert (await hold(front, {"best_available": wish})).status == status


async def test_no_counter_offer_for_a_category(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, drawn_event(["i..."], UNLIMITED)) as front:
        wish = {"best_available": {"count": 1, "categories": ["aisle"]}, "counter_offer": "hold"}

        assert (await hold(front, wish)).error == "invalid_request"


async def test_more_places_than_there_are_name_the_zone(front: FrontEnd) -> None:
    reply = await hold(front, {"quantities": [{"zone_id": "floor", "quantity": 51}]})

    assert (reply.status, reply.error, reply.body["zones"]) == (409, "block_at_capacity", ["floor"])


async def test_what_is_held_already_is_answered_with_200(front: FrontEnd) -> None:
    first = await hold(front, {"seats": ["A-1", "A-2"]})

    again = await hold(front, {"seats": ["A-1", "A-2"]})

    assert again.status == 200
    assert again.data["hold_id"] == first.data["hold_id"]


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"seats": ["A-1", "Z-9"]}, 404, "seat_not_found"),
        ({"quantities": [{"zone_id": "balcony", "quantity": 1}]}, 404, "seat_not_found"),
        ({"best_available": {"zone_id": "balcony", "count": 1}}, 404, "seat_not_found"),
        ({"best_available": {"zones": ["orchestra", "balcony"], "count": 1}}, 404, "seat_not_found"),
        ({"best_available": {"zones": ["orchestra", "floor"], "count": 1}}, 400, "invalid_request"),
        ({"best_available": {"zones": ["orchestra", "orchestra"], "count": 1}}, 400, "invalid_request"),
        ({"best_available": {"zones": ["floor"], "zone_id": "floor", "count": 1}}, 400, "invalid_request"),
        ({"best_available": {"count": 1}}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"seats": []}, 400, "invalid_request"),
        ({"seats": ["A-1", "A-1"]}, 400, "invalid_request"),
        ({"seats": ["A-1"], "best_available": {"zone_id": "orchestra", "count": 1}}, 400, "invalid_request"),
        ({"seats": "A-1"}, 400, "invalid_request"),
        ({"seats": [1]}, 400, "invalid_request"),
        ({"seats": ["A-1"], "price": 1}, 400, "invalid_request"),
        ({"quantities": [{"zone_id": "floor", "quantity": 0}]}, 400, "invalid_request"),
        ({"quantities": [{"zone_id": "floor", "quantity": 101}]}, 400, "invalid_request"),
        ({"quantities": [{"zone_id": "floor", "quantity": 60}, {"zone_id": "floor", "quantity": 60}]}, 400, None),
        ({"seats": ["A-1"], "cart_token": "a\nb"}, 400, "invalid_request"),
        ({"seats": ["A-1"], "cart_token": "x" * 61}, 400, "invalid_request"),
        ({"quantities": [{"zone_id": "orchestra", "quantity": 1}]}, 404, "seat_not_found"),
    ],
)
async def test_a_wish_that_makes_no_sense_holds_nothing(
    still: FrontEnd, body: object, status: int, error: str | None
) -> None:
    before = await still.rig.on.dump()

    reply = await hold(still, body)

    assert reply.status == status
    assert error is None or reply.error == error
    assert await still.rig.on.dump() == before


async def test_a_list_has_the_live_holds_of_the_caller_only(front: FrontEnd) -> None:
    mine = await front.reserve("A-1")
    lapsed = await front.reserve("A-2")
    await front.reserve("A-3", user=uuid4())
    await front.rig.on.lapse(UUID(lapsed.data["hold_id"]))

    reply = await front.call("GET", f"/api/events/{front.event.event_id}/holds")

    assert reply.status == 200
    assert [each["hold_id"] for each in reply.data["holds"]] == [mine.data["hold_id"]]
    assert reply.data["holds"][0]["held_until"] == mine.data["held_until"]


async def test_a_hold_is_found_by_its_id_alone_before_postgres_knows_it(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, persist=False, ack=AckRule.ON_REQUEST) as front:
        held = await front.reserve("A-1", headers={"Prefer": "ack=redis"})

        reply = await show(front, held.data["hold_id"])

        assert reply.status == 200
        assert reply.data["seats"][0]["seat_id"] == "A-1"
        assert await front.rig.fetch("SELECT * FROM seat_holds") == []


async def test_a_hold_that_is_overdue_shows_as_expired(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    await front.rig.on.lapse(UUID(held.data["hold_id"]))

    reply = await show(front, held.data["hold_id"])

    assert (reply.status, reply.data["status"]) == (200, "expired")
    assert "held_until" not in reply.data


@pytest.mark.parametrize(
    ("end", "status", "error"), [("lapse", "expired", "hold_expired"), ("release", "cancelled", "hold_released")]
)
async def test_a_hold_that_redis_has_forgotten_is_known_to_its_owner(
    front: FrontEnd, end: str, status: str, error: str
) -> None:
    held = await hold(front, {"seats": ["A-1"], "quantities": [{"zone_id": "floor", "quantity": 2}]})
    hold_id = UUID(held.data["hold_id"])
    if end == "release":
        await front.call("DELETE", f"/api/holds/{hold_id}")
    await forget(front, hold_id)

    shown, extended = await show(front, str(hold_id)), await front.call("POST", f"/api/holds/{hold_id}/extend")
    released = await front.call("DELETE", f"/api/holds/{hold_id}")

    assert (shown.status, shown.data["status"]) == (200, status)
    assert (shown.data["seats"], shown.data["quantities"]) == (held.data["seats"], held.data["quantities"])
    assert "held_until" not in shown.data
    assert (extended.status, extended.error) == (409, error)
    assert (released.status, released.data["status"], released.data["released_count"]) == (200, status, 0)
    # It is nobody else's, not even for those who know its id.
    for who in ({"user": uuid4()}, {"org": uuid4()}):
        assert (await show(front, str(hold_id), **who)).error == "hold_not_found"


async def test_a_sold_hold_that_redis_has_forgotten_stays_sold(front: FrontEnd) -> None:
    hold_id = await reserve(front, "A-1")
    await complete(front, await checked_out(front))
    await forget(front, hold_id)

    assert (await show(front, str(hold_id))).data["status"] == "converted"
    assert (await front.call("DELETE", f"/api/holds/{hold_id}")).error == "hold_sold"


async def test_a_hold_of_an_event_that_is_out_of_service_is_known_to_its_owner(front: FrontEnd) -> None:
    hold_id = await reserve(front, "A-1")
    await front.call("DELETE", f"/api/holds/{hold_id}")
    await front.rig.on.change(state=EventState.ARCHIVED)
    assert (await front.rig.on.backend.close_event(front.event)).status is Status.DONE

    assert (await show(front, str(hold_id))).data["status"] == "cancelled"
    assert (await front.call("DELETE", f"/api/holds/{hold_id}")).data["status"] == "cancelled"


async def test_another_users_hold_looks_like_one_that_does_not_exist(still: FrontEnd) -> None:
    held = await still.reserve("A-1")
    hold_id, other = held.data["hold_id"], uuid4()
    before = await still.rig.on.dump()

    replies = [
        await show(still, hold_id, user=other),
        await still.call("POST", f"/api/holds/{hold_id}/extend", user=other),
        await still.call("DELETE", f"/api/holds/{hold_id}", user=other),
        await show(still, str(uuid4())),
        await still.call("POST", f"/api/holds/{uuid4()}/extend"),
        await still.call("DELETE", f"/api/holds/{uuid4()}"),
        await show(still, hold_id, org=uuid4()),
        await still.call("POST", f"/api/holds/{hold_id}/extend", org=uuid4()),
        await still.call("DELETE", f"/api/holds/{hold_id}", org=uuid4()),
    ]

    assert [(reply.status, reply.error) for reply in replies] == [(404, "hold_not_found")] * len(replies)
    assert len({str(reply.body) for reply in replies}) == 1
    assert await still.rig.on.dump() == before


async def test_an_extension_moves_the_end_once_per_key(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    path, key = f"/api/holds/{held.data['hold_id']}/extend", {"Idempotency-Key": "x" * 200}

    first = await front.call("POST", path, headers=key)
    repeat = await front.call("POST", path, headers=key)
    second = await front.call("POST", path, headers={"Idempotency-Key": "another"})

    assert [first.status, repeat.status, second.status] == [200, 200, 200]
    assert first.data["held_until_unix"] == held.data["held_until_unix"] + 300
    assert repeat.data["held_until"] == first.data["held_until"]
    assert second.data["held_until_unix"] == held.data["held_until_unix"] + 600
    assert first.data["durability"] == "postgres"


async def test_an_extension_stops_at_the_longest_time_a_hold_may_have(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    path = f"/api/holds/{held.data['hold_id']}/extend"
    for _ in range(2):
        assert (await front.call("POST", path)).status == 200

    reply = await front.call("POST", path)

    assert (reply.status, reply.error) == (409, "extension_limit")


async def test_a_release_gives_the_seats_back_and_may_be_repeated(front: FrontEnd) -> None:
    held = await hold(front, {"seats": ["A-1", "A-2"], "quantities": [{"zone_id": "floor", "quantity": 2}]})
    path = f"/api/holds/{held.data['hold_id']}"

    first = await front.call("DELETE", path)
    again = await front.call("DELETE", path)

    assert (first.status, first.data["status"], first.data["released_count"]) == (200, "cancelled", 4)
    assert [seat["seat_id"] for seat in first.data["released_seats"]] == ["A-1", "A-2"]
    assert (again.status, again.data["status"], again.data["released_count"]) == (200, "cancelled", 0)
    assert (await show(front, held.data["hold_id"])).data["status"] == "cancelled"
    rows = await front.rig.fetch("SELECT DISTINCT status, release_reason FROM seat_holds")
    assert rows == [{"status": "cancelled", "release_reason": "user_cancelled"}]
    assert (await front.reserve("A-1", user=uuid4())).status == 201


async def test_releasing_what_has_expired_says_so(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    await front.rig.on.lapse(UUID(held.data["hold_id"]))

    reply = await front.call("DELETE", f"/api/holds/{held.data['hold_id']}")

    assert (reply.status, reply.data["status"], reply.data["released_count"]) == (200, "expired", 0)


@pytest.mark.parametrize("method", ["extend", "release"])
async def test_what_is_sold_is_neither_extended_nor_released(front: FrontEnd, method: str) -> None:
    held = await front.reserve("A-1")
    hold_id = UUID(held.data["hold_id"])
    sold = await front.rig.on.backend.confirm_holds(front.event, [hold_id], sale="sale-1", user_id=None)
    assert sold.status.succeeded

    if method == "extend":
        reply = await front.call("POST", f"/api/holds/{hold_id}/extend")
    else:
        reply = await front.call("DELETE", f"/api/holds/{hold_id}")

    assert (reply.status, reply.error) == (409, "hold_sold")
    assert (await show(front, str(hold_id))).data["status"] == "converted"


@pytest.mark.parametrize(("ending", "error"), [("release", "hold_released"), ("lapse", "hold_expired")])
async def test_what_has_ended_is_not_extended(front: FrontEnd, ending: str, error: str) -> None:
    held = await front.reserve("A-1")
    if ending == "release":
        await front.call("DELETE", f"/api/holds/{held.data['hold_id']}")
    else:
        await front.rig.on.lapse(UUID(held.data["hold_id"]))

    reply = await front.call("POST", f"/api/holds/{held.data['hold_id']}/extend")

    assert (reply.status, reply.error) == (409, error)


async def test_what_is_in_a_checkout_is_not_released_by_its_owner(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    taken = await front.rig.on.backend.extend_holds(
        front.event,
        [UUID(held.data["hold_id"])],
        user_id=front.user,
        key="checkout",
        extension_ms=1000,
        total_ms=1_200_000,
        checkout="checkout-1",
    )
    assert taken.status.succeeded

    replies = [
        await front.call("DELETE", f"/api/holds/{held.data['hold_id']}"),
        await front.call("POST", f"/api/holds/{held.data['hold_id']}/extend"),
    ]

    assert [(reply.status, reply.error) for reply in replies] == [(409, "hold_in_checkout")] * 2


async def test_a_repeat_under_the_same_key_gets_the_first_result(front: FrontEnd) -> None:
    body, key = {"seats": ["A-1", "A-2"]}, {"Idempotency-Key": "order 17"}

    first = await hold(front, body, headers=key)
    repeat = await hold(front, body, headers=key)

    assert (first.status, repeat.status) == (201, 201)
    assert repeat.data["hold_id"] == first.data["hold_id"]
    assert repeat.data["seats"] == first.data["seats"]
    assert repeat.data["held_until"] == first.data["held_until"]


async def test_a_repeat_of_best_available_gets_the_same_seats(front: FrontEnd) -> None:
    body, key = {"best_available": {"zone_id": "orchestra", "count": 2}}, {"Idempotency-Key": "k"}

    replies = await asyncio.gather(*(hold(front, body, headers=key) for _ in range(10)))

    assert {reply.status for reply in replies} == {201}
    assert len({reply.data["hold_id"] for reply in replies}) == 1
    assert len(await front.rig.fetch("SELECT * FROM seat_holds")) == 2


async def test_other_content_under_the_same_key_is_refused(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "k"}
    await hold(front, {"seats": ["A-1"]}, headers=key)

    replies = [
        await hold(front, {"seats": ["A-2"]}, headers=key),
        await front.reserve("A-1", headers=key),
    ]

    assert [(reply.status, reply.error) for reply in replies] == [(422, "hold_id_reused")] * 2


async def test_a_key_belongs_to_its_user(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "k"}
    mine = await hold(front, {"seats": ["A-1"]}, headers=key)

    theirs = await hold(front, {"seats": ["A-2"]}, headers=key, user=uuid4())

    assert theirs.status == 201
    assert theirs.data["hold_id"] != mine.data["hold_id"]


async def test_a_hold_shows_up_in_the_list_whatever_made_it(front: FrontEnd) -> None:
    """A hold whose id carries no tag of its event is in the list, although it cannot be asked for alone."""
    holder = Holder(hold_id=uuid4(), user_id=front.user)
    made = await front.rig.on.backend.hold_seats(front.event, holder, seats=[front.event.seats["A-1"]])
    assert made.status.succeeded

    reply = await front.call("GET", f"/api/events/{front.event.event_id}/holds")

    assert [each["hold_id"] for each in reply.data["holds"]] == [str(holder.hold_id)]


async def test_payment_services_hold_nothing(front: FrontEnd) -> None:
    reply = await hold(front, {"seats": ["A-1"]}, role=Role.SERVICE)

    assert (reply.status, reply.error) == (403, "forbidden")


async def test_the_source_is_kept(front: FrontEnd) -> None:
    await hold(front, {"seats": ["A-1"], "source": "scanner"}, role=Role.SCANNER)

    assert await front.rig.fetch("SELECT source FROM seat_holds") == [{"source": "scanner"}]
    (audit,) = await front.rig.audit("seat_reserved")
    assert audit["changes"]["source"] == "scanner"


async def test_limits_say_when_to_try_again(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, with_limits(rate_limit_seats=2, rate_limit_seconds=120)) as front:
        first = await front.reserve("A-1")
        reply = await hold(front, {"seats": ["A-2", "A-3"]})

        assert first.headers["RateLimit-Policy"] == '"seats";q=2;w=120'
        assert (reply.status, reply.error) == (429, "rate_limit_exceeded")
        assert 0 < int(reply.headers["Retry-After"]) <= 120
        assert reply.headers["RateLimit"] == f'"seats";r=0;t={reply.headers["Retry-After"]}'
        assert reply.headers["RateLimit-Policy"] == '"seats";q=2;w=120'
