"""Checkouts over HTTP: started, completed, failed, cancelled; each again, and each against the other."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.engine.layout import EventState
from holdfast.http.tokens import Role
from support.checking_out import (
    cancel,
    change_event,
    checked_out,
    complete,
    forget,
    look,
    reserve,
    start,
    status_of,
)
from support.engine import document
from support.front_end import FrontEnd, serving
from support.scripts import held, places_held, reap, release


async def test_a_checkout_takes_the_holds_of_a_cart_and_gives_them_five_minutes(front: FrontEnd) -> None:
    first, second = await reserve(front, "A-1", cart="mine"), await reserve(front, "A-2", cart="mine")
    await reserve(front, "A-3", cart="other")

    reply = await start(front, cart="mine")

    assert reply.status == 201
    data = reply.data
    assert (data["event_id"], data["status"], data["tickets"]) == (str(front.event.event_id), "open", [])
    assert 890 < data["expires_in_seconds"] <= 900
    assert {seat["hold_id"] for seat in data["seats"]} == {str(first), str(second)}
    seat = data["seats"][0]
    assert (seat["seat_id"], seat["block_name"], seat["row"], seat["seat_number"]) == ("A-1", "Orchestra", "A", "1")
    assert (seat["zone_id"], seat["quantity"], seat["status"]) == ("orchestra", 1, "active")
    assert data["message"] == "Pay before the time is over."
    assert (await look(front, data["checkout_id"])).data["seats"] == data["seats"]


async def test_named_holds_are_taken_whatever_their_cart(front: FrontEnd) -> None:
    first, second = await reserve(front, "A-1", cart="one"), await reserve(front, "A-2", cart="two")
    await reserve(front, "A-3", cart="one")

    reply = await start(front, hold_ids=[str(first), str(second), str(first)])

    assert reply.status == 201
    assert {seat["hold_id"] for seat in reply.data["seats"]} == {str(first), str(second)}


async def test_places_without_seats_are_bought_too(front: FrontEnd) -> None:
    places = await places_held(front.rig.on, 3, user=front.user)

    checkout = await checked_out(front)
    sold = await complete(front, checkout)

    (seat,) = sold.data["seats"]
    assert (seat["hold_id"], seat["quantity"], seat["seat_id"], seat["row"]) == (str(places), 3, None, None)
    assert len(sold.data["tickets"]) == len({ticket["ticket_id"] for ticket in sold.data["tickets"]}) == 3
    assert {ticket["zone_id"] for ticket in sold.data["tickets"]} == {"floor"}


async def test_a_second_start_is_given_the_checkout_there_is(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    first = await start(front)

    again = await start(front)

    assert (first.status, again.status) == (201, 200)
    assert again.data["checkout_id"] == first.data["checkout_id"]
    assert again.data["held_until"] == first.data["held_until"]


async def test_many_starts_at_once_make_one_checkout(front: FrontEnd) -> None:
    for seat in ("A-1", "A-2", "A-3"):
        await reserve(front, seat)

    replies = await asyncio.gather(*(start(front) for _ in range(10)))

    assert sorted(reply.status for reply in replies) == [200] * 9 + [201]
    assert len({reply.data["checkout_id"] for reply in replies}) == 1
    assert await front.rig.value("SELECT count(*) FROM checkouts") == 1


async def test_what_was_reserved_since_gets_a_checkout_of_its_own(front: FrontEnd) -> None:
    """What is being paid for does not change under the payment."""
    await reserve(front, "A-1")
    first = await checked_out(front)
    await reserve(front, "A-2")

    second = await start(front)

    assert (second.status, [seat["seat_id"] for seat in second.data["seats"]]) == (201, ["A-2"])
    assert second.data["checkout_id"] != first


async def test_hold_expired_names_what_came_too_late(front: FrontEnd) -> None:
    late, live = await reserve(front, "A-1"), await reserve(front, "A-2")
    await front.rig.lapse(late)

    refused = await start(front)

    assert (refused.status, refused.error) == (409, "hold_expired")
    assert (refused.body["holds"], refused.body["seats"]) == ([str(late)], ["A-1"])
    assert await front.rig.value("SELECT count(*) FROM checkouts") == 0
    # The client goes on with the rest, by name.
    assert (await start(front, hold_ids=[str(live)])).status == 201


async def test_hold_expired_for_a_named_hold(front: FrontEnd) -> None:
    late, live = await reserve(front, "A-1"), await reserve(front, "A-2")
    await front.rig.lapse(late)

    refused = await start(front, hold_ids=[str(late), str(live)])

    assert (refused.status, refused.error, refused.body["holds"]) == (409, "hold_expired", [str(late)])


async def test_an_expired_seat_that_was_reserved_again_is_not_missed(front: FrontEnd) -> None:
    await front.rig.lapse(await reserve(front, "A-1"))
    again = await reserve(front, "A-1")

    reply = await start(front)

    assert [seat["hold_id"] for seat in reply.data["seats"]] == [str(again)]


async def test_hold_not_found_in_an_empty_cart(front: FrontEnd) -> None:
    await reserve(front, "A-1", cart="mine")

    refused = await start(front, cart="another")

    assert (refused.status, refused.error) == (404, "hold_not_found")


@pytest.mark.parametrize("whose", ["nobody's", "somebody else's"])
async def test_hold_not_found_for_a_named_hold(front: FrontEnd, whose: str) -> None:
    mine = await reserve(front, "A-1")
    other = uuid4() if whose == "nobody's" else await reserve(front, "A-2", user=uuid4())

    refused = await start(front, hold_ids=[str(mine), str(other)])

    assert (refused.status, refused.error, refused.body["holds"]) == (404, "hold_not_found", [str(other)])


async def test_hold_released_and_hold_sold_for_named_holds(front: FrontEnd) -> None:
    released, sold = await reserve(front, "A-1"), await reserve(front, "A-2")
    await release(front.rig.on, released)
    assert (await complete(front, await checked_out(front))).status == 200

    for hold, error in ((released, "hold_released"), (sold, "hold_sold")):
        refused = await start(front, hold_ids=[str(hold)])
        assert (refused.status, refused.error, refused.body["holds"]) == (409, error, [str(hold)])


async def test_hold_in_checkout_for_a_named_hold_of_another_one(front: FrontEnd) -> None:
    taken = await reserve(front, "A-1")
    await checked_out(front)
    free = await reserve(front, "A-2")

    refused = await start(front, hold_ids=[str(taken), str(free)])

    assert (refused.status, refused.error, refused.body["holds"]) == (409, "hold_in_checkout", [str(taken)])


async def test_event_not_found(front: FrontEnd) -> None:
    refused = await start(front, event_id=str(uuid4()))

    assert (refused.status, refused.error) == (404, "event_not_found")


async def test_event_unavailable(front: FrontEnd) -> None:
    """A cancelled event starts no checkout and sells nothing; what is in one can be given back."""
    await reserve(front, "A-1")
    checkout = await checked_out(front)
    await reserve(front, "A-2")
    await change_event(front, state=EventState.CANCELLED)
    # The front end hears of the change on its own, and at the latest when a script tells it.
    assert (await front.reserve("B-1")).error == "event_unavailable"

    refused = await start(front)
    sale = await complete(front, checkout)

    assert (refused.status, refused.error) == (400, "event_unavailable")
    assert (sale.status, sale.error) == (400, "event_unavailable")
    assert (await complete(front, checkout, "failed")).data["status"] == "failed"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"event_id": "x"},
        {"event_id": str(uuid4()), "hold_ids": [str(uuid4()) for _ in range(51)]},
        {"event_id": str(uuid4()), "hold_ids": ["x"]},
        {"event_id": str(uuid4()), "cart_token": "a\nb"},
        {"event_id": str(uuid4()), "user_id": str(uuid4())},
    ],
)
async def test_invalid_request(front: FrontEnd, body: dict[str, Any]) -> None:
    refused = await front.call("POST", "/api/checkouts", body)

    assert (refused.status, refused.error) == (400, "invalid_request")


async def test_a_payment_that_succeeds_sells_everything(front: FrontEnd) -> None:
    first, second = await reserve(front, "A-1"), await reserve(front, "B-2")
    checkout = await checked_out(front)

    sold = await complete(front, checkout)

    assert sold.status == 200
    assert (sold.data["status"], sold.data["message"]) == ("completed", "The seats are yours.")
    assert [seat["status"] for seat in sold.data["seats"]] == ["converted", "converted"]
    tickets = {ticket["seat_id"]: ticket for ticket in sold.data["tickets"]}
    assert tickets.keys() == {"A-1", "B-2"}
    assert (tickets["A-1"]["hold_id"], tickets["B-2"]["hold_id"]) == (str(first), str(second))
    assert (tickets["B-2"]["row"], tickets["B-2"]["seat_number"]) == ("B", "2")
    rows = await front.rig.fetch("SELECT id, sale_id FROM tickets")
    assert {str(row["id"]) for row in rows} == {ticket["ticket_id"] for ticket in tickets.values()}
    assert {row["sale_id"] for row in rows} == {checkout}
    assert (await look(front, checkout)).data == sold.data
    refused = await front.reserve("A-1", user=uuid4())
    assert (refused.status, refused.error) == (409, "seat_not_available")


async def test_a_payment_that_fails_gives_everything_back(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)

    failed = await complete(front, checkout, "failed", payment_reference="pay-7")

    assert (failed.status, failed.data["status"], failed.data["tickets"]) == (200, "failed", [])
    (row,) = await front.rig.hold_rows(hold)
    assert (row["status"], row["release_reason"]) == ("cancelled", "payment_failed")
    (audit,) = await front.rig.audit("seat_released")
    assert (audit["changes"]["checkout_id"], audit["changes"]["notes"]) == (checkout, "pay-7")
    assert (await front.reserve("A-1", user=uuid4())).status == 201


async def test_a_cancellation_gives_everything_back(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    await places_held(front.rig.on, 2, user=front.user)
    checkout = await checked_out(front)

    cancelled = await cancel(front, checkout, notes="too dear")

    assert cancelled.status == 200
    assert cancelled.data == {
        "status": "cancelled",
        "checkout_id": checkout,
        "released_seats": [
            {"seat_id": "A-1", "block": "Orchestra", "row": "A", "number": "1", "quantity": 1},
            {"seat_id": None, "block": "Floor", "row": None, "number": None, "quantity": 2},
        ],
        "released_count": 3,
        "message": "Your order has been cancelled. Seats are now available for other customers.",
    }
    (row,) = await front.rig.hold_rows(hold)
    assert (row["status"], row["release_reason"]) == ("cancelled", "user_cancelled")
    notes = {audit["changes"]["notes"] for audit in await front.rig.audit("seat_released")}
    assert notes == {"too dear"}
    assert (await front.reserve("A-1", user=uuid4())).status == 201


async def test_every_end_can_be_repeated_and_says_the_same(front: FrontEnd) -> None:
    ends = (
        ("A-1", lambda checkout: complete(front, checkout)),
        ("A-2", lambda checkout: complete(front, checkout, "failed")),
        ("A-3", lambda checkout: cancel(front, checkout)),
    )
    for seat, end in ends:
        await reserve(front, seat)
        checkout = await checked_out(front)

        first, *others = await asyncio.gather(*(end(checkout) for _ in range(5)))
        again = await end(checkout)

        assert {reply.status for reply in (first, *others, again)} == {200}
        assert all(reply.data == first.data for reply in (*others, again))
    assert await front.rig.value("SELECT count(*) FROM tickets") == 1


async def test_who_comes_second_is_told_who_came_first(front: FrontEnd) -> None:
    ends = {
        "completed": lambda checkout: complete(front, checkout),
        "failed": lambda checkout: complete(front, checkout, "failed"),
        "cancelled": lambda checkout: cancel(front, checkout),
    }
    for number, (status, end) in enumerate(ends.items(), start=1):
        await reserve(front, f"A-{number}")
        checkout = await checked_out(front)
        assert (await end(checkout)).status == 200

        for other, second in ends.items():
            if other != status:
                told = await second(checkout)
                assert (told.status, told.error) == (409, f"checkout_{status}"), other
                assert told.body["checkout_id"] == checkout


async def test_of_completion_failure_and_cancellation_at_once_one_wins(front: FrontEnd) -> None:
    for number in range(1, 11):
        hold = await reserve(front, f"B-{number}")
        checkout = await checked_out(front)

        replies = await asyncio.gather(
            complete(front, checkout),
            cancel(front, checkout),
            complete(front, checkout, "failed"),
            complete(front, checkout),
        )

        status = (await look(front, checkout)).data["status"]
        won = {"completed": {0, 3}, "cancelled": {1}, "failed": {2}}[status]
        for index, reply in enumerate(replies):
            assert (reply.status, reply.error) == ((200, None) if index in won else (409, f"checkout_{status}"))
        assert len((await look(front, checkout)).data["tickets"]) == (status == "completed")
        (row,) = await front.rig.hold_rows(hold)
        assert row["status"] == ("converted" if status == "completed" else "cancelled")


async def test_a_payment_that_comes_late_buys_the_seats_if_they_are_free(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)
    await front.rig.lapse(hold)
    await reap(front.rig.on)
    await status_of(front, checkout, "expired")

    sold = await complete(front, checkout)

    assert (sold.status, sold.data["status"]) == (200, "completed")
    assert [ticket["seat_id"] for ticket in sold.data["tickets"]] == ["A-1"]


async def test_seats_lost_names_exactly_what_others_have_and_sells_nothing(front: FrontEnd) -> None:
    lost, kept = await reserve(front, "A-1"), await reserve(front, "A-2")
    checkout = await checked_out(front)
    await front.rig.lapse(lost)
    await held(front.rig.on, "A-1")

    refused = await complete(front, checkout)

    assert (refused.status, refused.error, refused.body["seats"]) == (409, "seats_lost", ["A-1"])
    assert refused.body["checkout_id"] == checkout
    assert await front.rig.value("SELECT count(*) FROM tickets") == 0
    # The money goes back, and so does the rest.
    assert (await complete(front, checkout, "failed")).data["status"] == "failed"
    assert [row["status"] for row in await front.rig.hold_rows(kept)] == ["cancelled"]
    assert (await front.reserve("A-2", user=uuid4())).status == 201


async def test_seats_lost_on_the_floor_names_the_zone(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, document(floor=3)) as front:
        places = await places_held(front.rig.on, 2, user=front.user)
        checkout = await checked_out(front)
        await front.rig.lapse(places)
        await reap(front.rig.on)
        await places_held(front.rig.on, 2, user=uuid4())

        refused = await complete(front, checkout)

        assert (refused.status, refused.error, refused.body["zones"]) == (409, "seats_lost", ["floor"])


async def test_seats_lost_when_nothing_remembers_the_holds(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)
    await forget(front, hold)

    refused = await complete(front, checkout)

    assert (refused.status, refused.error, refused.body["seats"]) == (409, "seats_lost", ["A-1"])


@pytest.mark.parametrize("end", ["cancelled", "failed"])
async def test_a_checkout_ends_when_nothing_remembers_its_holds(front: FrontEnd, end: str) -> None:
    """What it is told is what Postgres has, and nothing sells it afterwards."""
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)
    await forget(front, hold)

    ended = await (cancel(front, checkout) if end == "cancelled" else complete(front, checkout, "failed"))

    assert (ended.status, ended.data["status"]) == (200, end)
    assert (await look(front, checkout)).data["status"] == end
    (row,) = await front.rig.hold_rows(hold)
    assert row["status"] == "cancelled"
    late = await complete(front, checkout)
    assert (late.status, late.error) == (409, f"checkout_{end}")


async def test_a_cancelled_checkout_whose_time_was_over_is_not_sold_by_a_late_payment(front: FrontEnd) -> None:
    hold = await reserve(front, "A-1")
    checkout = await checked_out(front)
    await front.rig.lapse(hold)
    await reap(front.rig.on)

    cancelled = await cancel(front, checkout)
    told = await complete(front, checkout)

    assert (cancelled.status, cancelled.data["released_seats"]) == (200, [])
    assert (told.status, told.error) == (409, "checkout_cancelled")


@pytest.mark.parametrize("method", ["GET", "cancel"])
async def test_checkout_not_found_for_who_is_not_its_owner(front: FrontEnd, method: str) -> None:
    await reserve(front, "A-1")
    checkout = await checked_out(front)
    act = look if method == "GET" else cancel

    stranger = await act(front, checkout, user=uuid4())
    unknown = await act(front, str(uuid4()))

    assert (stranger.status, stranger.error) == (404, "checkout_not_found")
    assert stranger.body == unknown.body
    assert (await look(front, checkout)).data["status"] == "open"


@pytest.mark.parametrize("role", [Role.SERVICE, Role.ADMIN, Role.ORGANIZER])
async def test_staff_may_look_at_any_checkout(front: FrontEnd, role: Role) -> None:
    await reserve(front, "A-1")

    assert (await look(front, await checked_out(front), user=uuid4(), role=role)).status == 200


async def test_checkout_not_found_for_a_payment_of_nothing(front: FrontEnd) -> None:
    refused = await complete(front, str(uuid4()))

    assert (refused.status, refused.error) == (404, "checkout_not_found")


async def test_forbidden(front: FrontEnd) -> None:
    """Only the payment side completes, and it starts and cancels nothing."""
    await reserve(front, "A-1")
    checkout = await checked_out(front)

    for role in (Role.CUSTOMER, Role.SCANNER, Role.ORGANIZER, Role.ADMIN):
        assert (await complete(front, checkout, role=role)).error == "forbidden"
    assert (await start(front, role=Role.SERVICE)).error == "forbidden"
    assert (await cancel(front, checkout, role=Role.SERVICE)).error == "forbidden"


async def test_a_sale_that_postgres_cannot_confirm_is_an_unknown_outcome(redis_url: str, database_dsn: str) -> None:
    """Nobody persists: the seat is decided in Redis, and the answer is that nobody knows yet."""
    async with serving(redis_url, database_dsn, persist=False) as front:
        hold = await front.rig.on.hold("A-1", user=front.user)
        await front.rig.drain()
        user, checkout = front.user, uuid4()
        assert hold.hold_id is not None
        await front.rig.on.backend.extend_holds(
            front.event,
            [hold.hold_id],
            user_id=user,
            key="k",
            extension_ms=1,
            total_ms=3_600_000,
            checkout=str(checkout),
        )
        await front.rig.drain()

        unknown = await complete(front, str(checkout))

        assert (unknown.status, unknown.error) == (503, "unknown_outcome")
        assert "Retry-After" in unknown.headers
        await front.rig.drain()
        assert (await complete(front, str(checkout))).data["status"] == "completed"


async def test_holds_in_a_checkout_can_be_sold_only_once_however_many_pay(front: FrontEnd) -> None:
    """Two late payments for one seat that had two holders, one after the other."""
    first = await reserve(front, "A-1")
    late = await checked_out(front)
    await front.rig.lapse(first)
    other = uuid4()
    await held(front.rig.on, "A-1", user=other)
    second = await checked_out(front, user=other)

    replies = await asyncio.gather(complete(front, late), complete(front, second))

    assert [reply.error for reply in replies] == ["seats_lost", None]
    assert await front.rig.value("SELECT count(*) FROM tickets") == 1


async def test_the_checkout_of_a_user_does_not_depend_on_the_others_of_the_event(front: FrontEnd) -> None:
    users = [uuid4() for _ in range(8)]
    for number, user in enumerate(users, start=1):
        await reserve(front, f"C-{number}", user=user)

    async def buy(user: UUID) -> str:
        checkout = await checked_out(front, user=user)
        return str((await complete(front, checkout)).data["status"])

    assert set(await asyncio.gather(*(buy(user) for user in users))) == {"completed"}
    assert await front.rig.value("SELECT count(DISTINCT ordinal) FROM tickets") == 8
