"""Holding one seat over HTTP."""

from uuid import uuid4

from support.front_end import FrontEnd


async def test_a_free_seat_is_held_and_described(front: FrontEnd) -> None:
    reply = await front.reserve("A-3", {"source": "web"})

    assert reply.status == 201
    held = reply.data
    assert held["seat_id"] == "A-3"
    assert held["event_id"] == str(front.event.event_id)
    assert (held["block_name"], held["row"], held["seat_number"]) == ("Orchestra", "A", "3")
    assert held["status"] == "held"
    assert held["expires_in_seconds"] == 600
    assert held["message"] == "Seat reserved for 10 minutes. Proceed to checkout."
    assert held["durability"] == "postgres"
    assert reply.headers["Cache-Control"] == "no-store"
    (row,) = await front.rig.fetch("SELECT hold_id, user_id, status FROM seat_holds")
    assert (str(row["hold_id"]), row["user_id"], row["status"]) == (held["hold_id"], front.user, "active")


async def test_the_same_user_again_gets_the_hold_that_exists(front: FrontEnd) -> None:
    first = await front.reserve("A-3")

    again = await front.reserve("A-3")

    assert again.status == 200
    assert again.data["hold_id"] == first.data["hold_id"]
    assert again.data["held_until"] == first.data["held_until"]


async def test_another_user_is_told_when_the_seat_may_come_free_and_not_who_has_it(front: FrontEnd) -> None:
    held = await front.reserve("A-3")

    refused = await front.reserve("A-3", user=uuid4())

    assert (refused.status, refused.error) == (409, "seat_held_by_another_user")
    assert refused.body["expires_at"] == held.data["held_until"]
    assert 0 < refused.body["expires_in"] <= 600
    assert refused.body["seats"] == ["A-3"]
    assert "Retry-After" not in refused.headers
    assert str(front.user) not in str(refused)
