"""What organisers do with seats: release what others hold, block, unblock."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.engine.layout import EventState
from holdfast.http.tokens import Role
from support.checking_out import cancel, change_event, checked_out, complete, reserve
from support.front_end import FrontEnd, Reply, serving
from support.polling import eventually
from support.scripts import places_held

ADMIN = uuid4()


async def ask(front: FrontEnd, action: str, *, headers: dict[str, str] | None = None, **body: Any) -> Reply:
    """Release, block or unblock, as an administrator of the event's organisation unless `role` says otherwise."""
    role = body.pop("role", Role.ADMIN)
    body = {"event_id": str(front.event.event_id), **body}
    return await front.call("POST", f"/api/admin/seats/{action}", body, headers=headers, role=role, user=ADMIN)


@pytest.mark.parametrize("role", [Role.ADMIN, Role.ORGANIZER])
async def test_an_administrator_releases_what_others_hold(front: FrontEnd, role: Role) -> None:
    hold = await reserve(front, "A-1")

    released = await ask(front, "release", seats=["A-1"], notes="The customer called.", role=role)

    assert released.status == 200
    assert released.data == {
        "status": "released",
        "event_id": str(front.event.event_id),
        "hold_id": str(hold),
        "seats_released": 1,
        "reason": "admin_override",
        "message": "Seats released by admin",
        "seats": [{"seat_id": "A-1", "outcome": "released", "hold_id": str(hold)}],
        "holds": [
            {
                "hold_id": str(hold),
                "outcome": "released",
                "released_seats": [{"seat_id": "A-1", "block_name": "Orchestra", "row": "A", "seat_number": "1"}],
                "released_quantities": [],
            }
        ],
    }
    (row,) = await front.rig.hold_rows(hold)
    assert (row["status"], row["release_reason"]) == ("cancelled", "admin_override")
    (audit,) = await front.rig.audit("seat_released")
    assert audit["changes"]["released_by"] == str(ADMIN)
    assert audit["changes"]["notes"] == "The customer called."
    assert (await front.reserve("A-1", user=uuid4())).status == 201


async def test_a_batch_is_released_as_far_as_it_can_be(front: FrontEnd) -> None:
    """Seats and holds together, some of which are sold, in a checkout, free, blocked or unknown."""
    await reserve(front, "A-1", cart="paid")
    assert (await complete(front, await checked_out(front, cart="paid"))).status == 200
    paying = await reserve(front, "A-2", cart="paying")
    await checked_out(front, cart="paying")
    live, places = await reserve(front, "A-3"), await places_held(front.rig.on, 4, user=uuid4())
    assert (await ask(front, "block", seats=["A-5"])).status == 200
    unknown = uuid4()

    reply = await ask(front, "release", seats=["A-1", "A-2", "A-3", "A-4", "A-5"], hold_ids=[str(places), str(unknown)])

    assert (reply.status, reply.data["status"], reply.data["seats_released"]) == (200, "released", 5)
    assert [each["outcome"] for each in reply.data["seats"]] == [
        "hold_sold",
        "hold_in_checkout",
        "released",
        "seat_available",
        "seat_blocked",
    ]
    outcomes = {UUID(each["hold_id"]): each["outcome"] for each in reply.data["holds"]}
    assert outcomes == {
        places: "released",
        unknown: "hold_not_found",
        paying: "hold_in_checkout",
        live: "released",
    }
    assert [(await front.rig.seat(f"A-{n}"))["status"] for n in (1, 2, 3)] == ["sold", "held", "available"]


async def test_more_holds_than_a_script_takes_are_released(front: FrontEnd) -> None:
    places = [await places_held(front.rig.on, 1, user=uuid4()) for _ in range(20)]
    for row in "ABC":
        for number in range(1, 11):
            assert (await front.rig.on.hold(f"{row}-{number}")).status.succeeded
    every = [f"{row}-{number}" for row in "ABC" for number in range(1, 11)]

    reply = await ask(front, "release", seats=every, hold_ids=[str(each) for each in places] + [str(uuid4())])

    assert (reply.status, reply.data["seats_released"], len(reply.data["holds"])) == (200, 50, 51)
    assert (await front.rig.zone(0))["held"] == (await front.rig.zone(1))["held"] == 0


async def test_a_hold_ends_as_a_whole(front: FrontEnd) -> None:
    held = await front.call("POST", f"/api/events/{front.event.event_id}/holds", {"seats": ["B-1", "B-2"]})
    assert held.status == 201

    reply = await ask(front, "release", seats=["B-1"])

    assert reply.data["seats_released"] == 2
    assert (await front.rig.seat("B-2"))["status"] == "available"


async def test_what_only_redis_has_acknowledged_is_released_too(redis_url: str, database_dsn: str) -> None:
    """The seat's hold is found although the front end did not wait for Postgres when it answered."""
    async with serving(redis_url, database_dsn) as front:
        held = await front.rig.on.hold("A-1")

        reply = await ask(front, "release", seats=["A-1"])

        assert (reply.status, reply.data["hold_id"]) == (200, str(held.hold_id))


# The edge cases of a release (section 7 of its specification) that an administrator can meet.


async def test_hold_already_cancelled(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    await ask(front, "release", hold_ids=[str(hold)])
    before = await front.rig.contents()

    again = await ask(front, "release", hold_ids=[str(hold)])

    assert (again.status, again.data["status"], again.data["seats_released"]) == (200, "unchanged", 0)
    assert [each["outcome"] for each in again.data["holds"]] == ["hold_released"]
    assert await front.rig.contents() == before


async def test_seat_already_sold(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    assert (await complete(front, await checked_out(front))).status == 200
    before = await front.rig.contents()

    refused = await ask(front, "release", seats=["A-1"])

    assert (refused.status, refused.error, refused.body["seats"]) == (409, "hold_sold", ["A-1"])
    assert await front.rig.contents() == before


async def test_seat_already_available(front: FrontEnd) -> None:
    reply = await ask(front, "release", seats=["A-1"])

    assert (reply.status, reply.data["status"]) == (200, "unchanged")
    assert reply.data["seats"] == [{"seat_id": "A-1", "outcome": "seat_available", "hold_id": None}]
    assert await front.rig.audit("seat_released") == []


async def test_optimistic_lock_conflict(front: FrontEnd) -> None:
    """Many release the same seat at once: one does, and the others find it done."""
    hold = await reserve(front, "A-1")

    replies = await asyncio.gather(*(ask(front, "release", hold_ids=[str(hold)]) for _ in range(10)))

    assert {reply.status for reply in replies} == {200}
    assert sum(reply.data["seats_released"] for reply in replies) == 1
    assert len(await front.rig.audit("seat_released")) == 1


async def test_hold_not_found(front: FrontEnd) -> None:
    unknown = str(uuid4())

    refused = await ask(front, "release", hold_ids=[unknown])

    assert (refused.status, refused.error, refused.body["holds"]) == (404, "hold_not_found", [unknown])


async def test_ticket_exists(front: FrontEnd) -> None:
    """By the hold that it was made from; the ticket stays."""
    hold = await reserve(front, "A-1")
    assert (await complete(front, await checked_out(front))).status == 200

    refused = await ask(front, "release", hold_ids=[str(hold)])

    assert (refused.status, refused.error, refused.body["holds"]) == (409, "hold_sold", [str(hold)])
    assert await front.rig.value("SELECT count(*) FROM tickets") == 1


async def test_checkout_has_payment_in_flight(front: FrontEnd) -> None:
    """It is locked while the payment may come, and can be released once the checkout has ended."""
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)

    refused = await ask(front, "release", seats=["A-1"])

    assert (refused.status, refused.error, refused.body["holds"]) == (409, "hold_in_checkout", [str(hold)])
    assert (await cancel(front, checkout)).status == 200
    assert (await ask(front, "release", seats=["A-1"])).data["status"] == "unchanged"


async def test_a_hold_past_its_time_ends_as_expired(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    await front.rig.lapse(hold)

    reply = await ask(front, "release", seats=["A-1"])

    assert (reply.status, reply.data["seats"][0]["outcome"]) == (200, "hold_expired")

    async def ended() -> bool:
        (row,) = await front.rig.hold_rows(hold)
        return (row["status"], row["release_reason"]) == ("expired", "ttl_expired")

    await eventually(ended, "the end is written")


async def test_redis_unavailable_and_nothing_persists(redis_url: str, database_dsn: str) -> None:
    """Nobody writes to Postgres: whether it was released is not known, and a repeat finds out."""
    async with serving(redis_url, database_dsn, persist=False) as front:
        held = await front.rig.on.hold("A-1")
        await front.rig.drain()

        unknown = await ask(front, "release", hold_ids=[str(held.hold_id)])

        assert (unknown.status, unknown.error) == (503, "unknown_outcome")
        await front.rig.drain()
        assert (await ask(front, "release", hold_ids=[str(held.hold_id)])).data["status"] == "unchanged"


@pytest.mark.parametrize("action", ["release", "block", "unblock"])
async def test_event_not_found_and_seat_not_found(front: FrontEnd, action: str) -> None:
    no_event = await ask(front, action, event_id=str(uuid4()), seats=["A-1"])
    no_seat = await ask(front, action, seats=["A-1", "Z-1"])

    assert (no_event.status, no_event.error) == (404, "event_not_found")
    assert (no_seat.status, no_seat.error, no_seat.body["seats"]) == (404, "seat_not_found", ["Z-1"])


BAD: list[dict[str, Any]] = [
    {},
    {"seats": ["A-1", "A-1"]},
    {"seats": ["A-1"], "notes": "x" * 501},
    {"seats": ["A-1"], "notes": "nothing\x00"},
    {"seats": [1]},
    {"seats": [f"S-{number}" for number in range(1001)]},
    {"seats": ["A-1"], "organization_id": str(uuid4())},
]


@pytest.mark.parametrize("action", ["release", "block", "unblock"])
@pytest.mark.parametrize("body", BAD)
async def test_invalid_request(still: FrontEnd, action: str, body: dict[str, Any]) -> None:
    before = await still.rig.on.dump()

    refused = await ask(still, action, **body)

    assert (refused.status, refused.error) == (400, "invalid_request")
    assert await still.rig.on.dump() == before


@pytest.mark.parametrize("body", [{"reason": "user_cancelled", "seats": ["A-1"]}, {"hold_ids": ["x"]}])
async def test_invalid_request_to_release(front: FrontEnd, body: dict[str, Any]) -> None:
    assert (await ask(front, "release", **body)).error == "invalid_request"


@pytest.mark.parametrize("action", ["release", "block", "unblock"])
async def test_forbidden(front: FrontEnd, action: str) -> None:
    for role in (Role.CUSTOMER, Role.SCANNER, Role.SERVICE):
        assert (await ask(front, action, seats=["A-1"], role=role)).error == "forbidden"


async def test_seats_and_places_are_blocked_and_unblocked(front: FrontEnd) -> None:
    wish: dict[str, Any] = {"seats": ["A-1", "A-2"], "quantities": [{"zone_id": "floor", "quantity": 10}]}

    blocked = await ask(front, "block", **wish, notes="Cameras.")

    assert (blocked.status, blocked.data["status"], blocked.data["changed_count"]) == (200, "blocked", 12)
    assert [seat["seat_id"] for seat in blocked.data["changed_seats"]] == ["A-1", "A-2"]
    assert blocked.data["changed_quantities"] == [{"zone_id": "floor", "block_name": "Floor", "quantity": 10}]
    assert ((await front.rig.zone(0))["blocked"], (await front.rig.zone(1))["blocked"]) == (2, 10)
    assert (await front.reserve("A-1")).error == "seat_not_available"
    (audit,) = await front.rig.audit("seats_blocked")
    assert audit["changes"]["seat_ids"] == ["A-1", "A-2"]
    assert (audit["changes"]["changed_by"], audit["changes"]["notes"]) == (str(ADMIN), "Cameras.")

    unblocked = await ask(front, "unblock", **wish, notes="No cameras.")

    assert (unblocked.data["status"], unblocked.data["changed_count"]) == ("unblocked", 12)
    (audit,) = await front.rig.audit("seats_unblocked")
    assert (audit["changes"]["changed_by"], audit["changes"]["notes"]) == (str(ADMIN), "No cameras.")
    assert ((await front.rig.zone(0))["blocked"], (await front.rig.zone(1))["blocked"]) == (0, 0)


@pytest.mark.parametrize("action", ["block", "unblock"])
async def test_what_is_so_already_is_unchanged(front: FrontEnd, action: str) -> None:
    if action == "block":
        await ask(front, "block", seats=["A-1"])

    again = await ask(front, action, seats=["A-1"])

    assert (again.status, again.data["status"], again.data["changed_count"]) == (200, "unchanged", 0)


async def test_a_repeat_under_a_key_does_not_block_more_places(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "key-1"}
    wish = {"quantities": [{"zone_id": "floor", "quantity": 10}]}

    first, again = [await ask(front, "block", headers=key, **wish) for _ in range(2)]

    assert (again.body, again.headers["Idempotency-Replayed"]) == (first.body, "true")
    assert (await front.rig.zone(1))["blocked"] == 10
    other = await ask(front, "block", headers=key, seats=["A-1"])
    assert (other.status, other.error) == (422, "hold_id_reused")


async def test_block_refusals_name_what_is_in_the_way_and_change_nothing(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    assert (await complete(front, await checked_out(front))).status == 200
    await reserve(front, "A-2")
    before = await front.rig.contents()

    held = await ask(front, "block", seats=["A-2", "A-3"])
    sold = await ask(front, "block", seats=["A-1", "A-3"])
    full = await ask(front, "block", seats=["A-3"], quantities=[{"zone_id": "floor", "quantity": 51}])

    assert (held.status, held.error, held.body["seats"]) == (409, "seat_held_by_another_user", ["A-2"])
    assert (sold.status, sold.error, sold.body["seats"]) == (409, "seat_not_available", ["A-1"])
    assert (full.status, full.error, full.body["zones"]) == (409, "block_at_capacity", ["floor"])
    assert await front.rig.contents() == before


async def test_places_of_a_seated_zone_and_a_zone_named_twice(front: FrontEnd) -> None:
    seated = await ask(front, "block", quantities=[{"zone_id": "orchestra", "quantity": 1}])
    unknown = await ask(front, "block", quantities=[{"zone_id": "balcony", "quantity": 1}])
    twice = await ask(front, "block", quantities=[{"zone_id": "floor", "quantity": 1}] * 2)

    assert (seated.status, seated.error, seated.body["zones"]) == (404, "seat_not_found", ["orchestra"])
    assert (unknown.status, unknown.error, unknown.body["zones"]) == (404, "seat_not_found", ["balcony"])
    assert (twice.status, twice.error) == (400, "invalid_request")


async def test_an_event_that_has_just_changed_is_blocked_as_it_is_now(front: FrontEnd) -> None:
    assert (await ask(front, "block", seats=["A-1"])).status == 200
    await change_event(front, state=EventState.CLOSED)

    assert (await ask(front, "block", seats=["A-2"])).data["status"] == "blocked"
