"""Repeats under an Idempotency-Key of calls whose answers are kept."""

import asyncio
from uuid import uuid4

from holdfast.http.app import ENDPOINTS
from support.checking_out import cancel, checked_out, complete, reserve, start
from support.front_end import FrontEnd

KEY = {"Idempotency-Key": "key-1"}


async def test_a_repeat_gets_the_first_answer_though_the_world_has_moved_on(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    first = await start(front, headers=KEY)
    await complete(front, first.data["checkout_id"])

    again = await start(front, headers=KEY)

    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"


async def test_a_refusal_is_repeated_too(front: FrontEnd) -> None:
    refused = await start(front, headers=KEY)
    await reserve(front, "A-1")

    again = await start(front, headers=KEY)

    assert (refused.status, refused.error) == (404, "hold_not_found")
    assert (again.status, again.body) == (refused.status, refused.body)
    assert again.headers["Content-Type"] == refused.headers["Content-Type"]


async def test_repeats_at_once_wait_for_the_first_answer(front: FrontEnd) -> None:
    """More of them than the front end has connections to Postgres."""
    await reserve(front, "A-1")

    replies = await asyncio.gather(*(start(front, headers=KEY) for _ in range(30)))

    assert {reply.status for reply in replies} == {201}
    assert all(reply.body == replies[0].body for reply in replies)
    assert sum("Idempotency-Replayed" not in reply.headers for reply in replies) == 1


async def test_other_content_under_the_same_key_is_refused(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    await start(front, headers=KEY)

    other = await start(front, cart="another", headers=KEY)

    assert (other.status, other.error) == (422, "hold_id_reused")


async def test_a_key_is_good_for_one_user_and_one_path(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    mine = await start(front, headers=KEY)
    other = uuid4()
    await reserve(front, "A-2", user=other)

    theirs = await start(front, headers=KEY, user=other)
    cancelled = await cancel(front, mine.data["checkout_id"], headers=KEY)

    assert theirs.data["checkout_id"] != mine.data["checkout_id"]
    assert (cancelled.status, cancelled.data["status"]) == (200, "cancelled")


async def test_a_start_whose_answer_was_lost_finds_what_it_began(front: FrontEnd) -> None:
    """The front end died after the script and before it kept the answer; the buyer has reserved more since."""
    await reserve(front, "A-1")
    first = await start(front, headers=KEY)
    await front.rig.execute("DELETE FROM kept_answers")
    await reserve(front, "A-2")

    again = await start(front, headers=KEY)

    assert (again.status, again.data["checkout_id"]) == (200, first.data["checkout_id"])
    assert [seat["seat_id"] for seat in again.data["seats"]] == ["A-1"]


async def test_ends_whose_answers_were_lost_say_the_same_again(front: FrontEnd) -> None:
    await reserve(front, "A-1")
    sold = await checked_out(front)
    await reserve(front, "A-2")
    given_back = await checked_out(front)
    firsts = [await complete(front, sold, headers=KEY), await cancel(front, given_back, headers=KEY)]
    await front.rig.execute("DELETE FROM kept_answers")

    agains = [await complete(front, sold, headers=KEY), await cancel(front, given_back, headers=KEY)]

    assert [(reply.status, reply.body) for reply in agains] == [(reply.status, reply.body) for reply in firsts]


def test_every_post_of_buyers_and_the_payment_side_takes_a_key() -> None:
    posts = [each for each in ENDPOINTS if each.method == "POST" and not each.path.startswith("/api/admin/")]

    assert posts
    assert [each.path for each in posts if not each.idempotency_key] == []
