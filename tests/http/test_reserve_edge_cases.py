"""The edge cases of reserving a seat, each named as the specification's table of failure modes names it.

The case "session expired" is in test_auth.
"""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.backend import NEVER_MS, Holder
from holdfast.engine.layout import EventState
from holdfast.engine.policy import AckRule
from holdfast.http.stores import hot_cache_key
from support.checking_out import start
from support.engine import document
from support.front_end import FrontEnd, Reply, serving
from support.persisting import running
from support.polling import eventually
from support.servers import OwnServer


async def test_overselling(front: FrontEnd) -> None:
    replies = await asyncio.gather(*(front.reserve("A-1", user=uuid4()) for _ in range(40)))

    statuses = [reply.status for reply in replies]
    assert sorted(statuses) == [201] + [409] * 39
    assert await front.rig.value("SELECT count(*) FROM seat_holds WHERE status = 'active'") == 1


async def test_duplicate_hold_same_user(front: FrontEnd) -> None:
    replies = await asyncio.gather(*(front.reserve("A-1") for _ in range(10)))

    assert sorted(reply.status for reply in replies) == [200] * 9 + [201]
    assert len({reply.data["hold_id"] for reply in replies}) == 1


async def test_hold_expires_during_checkout(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    await front.rig.lapse(UUID(held.data["hold_id"]))

    late = [await front.call("POST", f"/api/holds/{held.data['hold_id']}/extend"), await start(front)]
    again = await front.reserve("A-1")

    assert [(reply.status, reply.error) for reply in late] == [(409, "hold_expired")] * 2
    assert again.status == 201
    assert again.data["hold_id"] != held.data["hold_id"]


async def test_redis_unavailable_during_write(tmp_path: Path, database_dsn: str) -> None:
    """Not now, for a moment; then Postgres holds seats, and knows those that Redis gave away."""
    own = OwnServer(tmp_path / "valkey")
    try:
        async with serving(own.url, database_dsn) as front:
            await front.reserve("A-1")
            own.stop()

            async def answered() -> Reply | None:
                reply = await front.reserve("A-2")
                if reply.status == 503:
                    assert reply.error in ("unavailable", "unknown_outcome", "fenced")
                    assert int(reply.headers["Retry-After"]) >= 1
                    return None
                return reply

            held: Reply = await eventually(answered, "a seat is held without Redis")
            taken = await front.reserve("A-1", user=uuid4())

            assert (held.status, held.data["durability"]) == (201, "postgres")
            assert (taken.status, taken.error) == (409, "seat_held_by_another_user")
    finally:
        own.stop()


async def test_ets_auto_evict_timing_issues(front: FrontEnd) -> None:
    """What this process remembers as taken is forgotten as soon as the log says so."""
    held = await front.reserve("A-1")
    other = uuid4()
    assert (await front.reserve("A-1", user=other)).status == 409
    await front.call("DELETE", f"/api/holds/{held.data['hold_id']}")

    async def had() -> bool:
        return (await front.reserve("A-1", user=other)).status == 201

    assert await eventually(had, "the seat can be had")


async def test_oban_job_fires_while_hold_converting(front: FrontEnd) -> None:
    """Expiry that comes after the sale changes nothing."""
    held = await front.reserve("A-1")
    hold_id, backend = UUID(held.data["hold_id"]), front.rig.on.backend
    sold = await backend.confirm_holds(front.event, [hold_id], sale="sale-1", user_id=None)
    assert sold.status.succeeded

    expired = await backend.expire_holds(front.event.organization_id, front.event.event_id, limit=100)
    reply = await front.reserve("A-1", user=uuid4())

    assert expired.expired == 0
    assert (reply.status, reply.error) == (409, "seat_not_available")


async def test_multi_tenant_isolation_breach(front: FrontEnd) -> None:
    reply = await front.reserve("A-1", org=uuid4())

    assert (reply.status, reply.error) == (404, "event_not_found")
    assert await front.rig.value("SELECT count(*) FROM seat_holds") == 0


async def test_duplicate_oban_job_execution(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    await front.rig.lapse(UUID(held.data["hold_id"]))
    backend, event = front.rig.on.backend, front.event

    runs = [await backend.expire_holds(event.organization_id, event.event_id, limit=100) for _ in range(2)]

    assert [run.expired for run in runs] == [1, 0]
    replies = [await front.reserve("A-1", user=uuid4()) for _ in range(2)]
    assert [reply.status for reply in replies] == [201, 409]


async def test_network_timeout_client(front: FrontEnd) -> None:
    """A client that never got its answer repeats the request, and gets the answer."""
    key = {"Idempotency-Key": "click-1"}
    lost = asyncio.ensure_future(front.reserve("A-1", headers=key))
    await eventually(lambda: front.rig.value("SELECT count(*) FROM seat_holds"), "the hold is committed")
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)

    repeat = await front.reserve("A-1", headers=key)

    assert repeat.status == 201
    assert await front.rig.value("SELECT hold_id::text FROM seat_holds") == repeat.data["hold_id"]


async def test_stale_cache_during_partition(front: FrontEnd) -> None:
    """Postgres has the last word: what Redis gives away although it is held there is refused, and given back."""
    other = uuid4()
    await front.reserve("A-1")
    await front.rig.redis.setrange(front.rig.on.keys.key("map"), front.event.seats["A-1"].value, ".")

    # A request with a key goes past what this process remembers.
    reply = await front.reserve("A-1", user=other, headers={"Idempotency-Key": "click-1"})

    assert (reply.status, reply.error) == (409, "seat_held_by_another_user")

    async def given_back() -> bool:
        listed = await front.call("GET", f"/api/events/{front.event.event_id}/holds", user=other)
        return listed.data["holds"] == []

    assert await eventually(given_back, "Redis has given the seat back")


async def test_block_at_capacity(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn, document(capacity=1)) as front:
        first = await front.reserve("A-1")
        second = await front.reserve("A-2", user=uuid4())

        assert first.status == 201
        assert (second.status, second.error, second.body["zones"]) == (409, "block_at_capacity", ["orchestra"])


async def test_seat_already_sold(front: FrontEnd) -> None:
    held = await front.reserve("A-1")
    hold_id = UUID(held.data["hold_id"])
    await front.rig.on.backend.confirm_holds(front.event, [hold_id], sale="sale-1", user_id=None)

    reply = await front.reserve("A-1", user=uuid4())

    assert (reply.status, reply.error, reply.body["current_status"]) == (409, "seat_not_available", "sold")
    assert "expires_at" not in reply.body


@pytest.mark.parametrize("end", ["held", "sold", "blocked"])
async def test_a_refusal_says_what_the_seat_is_and_never_whose(front: FrontEnd, end: str) -> None:
    """The same from the script and from what this process remembers."""
    backend, seat = front.rig.on.backend, front.event.seats["A-1"]
    remembered = front.client.server.app[hot_cache_key]

    def is_remembered(ordinal: int, as_what: str = "held") -> bool:
        event = front.event
        taken = remembered.taken(event.organization_id, event.event_id, ordinal, user_id=uuid4(), now_ms=1)
        return taken is not None and {NEVER_MS: "sold", 0: "blocked"}.get(taken.until_ms, "held") == as_what

    # What happened before it followed the log it does not know: another seat is taken, again and again, until it does.
    other, taker = front.event.seats["C-1"], Holder(uuid4(), uuid4())

    async def follows() -> bool:
        nonlocal taker
        if is_remembered(other.value):
            return True
        await backend.release_holds(front.event, [taker.hold_id], user_id=None, reason="admin_override")
        taker = Holder(uuid4(), uuid4())
        await backend.hold_seats(front.event, taker, seats=[other])
        return False

    await eventually(follows, "the log is followed")
    if end == "blocked":
        await backend.block_seats(front.event, seats=[seat])
    else:
        held = await front.reserve("A-1")
    if end == "sold":
        await backend.confirm_holds(front.event, [UUID(held.data["hold_id"])], sale="sale-1", user_id=None)
    await eventually(lambda: is_remembered(seat.value, end), "the seat is remembered")

    # A request with a key goes past what this process remembers.
    replies = [await front.reserve("A-1", user=uuid4(), headers=key) for key in ({}, {"Idempotency-Key": "click-1"})]

    for reply in replies:
        assert (reply.status, reply.body["current_status"], reply.body["seats"]) == (409, end, ["A-1"])
        assert str(front.user) not in str(reply)


async def test_event_draft_archived(front: FrontEnd) -> None:
    """A change of state takes effect on the very next hold, whatever this process remembers of the event."""
    assert (await front.reserve("A-1")).status == 201
    changed = msgspec.structs.replace(front.event.document, state=EventState.ARCHIVED)
    await front.rig.on.change(state=EventState.ARCHIVED)
    await front.rig.save(front.event)
    assert front.event.document == changed

    reply = await front.reserve("A-2")

    assert (reply.status, reply.error) == (400, "event_not_available")


async def test_a_change_that_has_not_reached_postgres_is_waited_for_a_moment_and_then_not_now(front: FrontEnd) -> None:
    assert (await front.reserve("A-1")).status == 201
    await front.rig.on.change(name="Another night")

    reply = await front.reserve("A-2")

    assert (reply.status, reply.error, reply.headers["Retry-After"]) == (503, "stale_config", "1")


async def test_an_event_that_comes_into_being_is_found(front: FrontEnd) -> None:
    other = msgspec.structs.replace(document(), event_id=uuid4())
    path = f"/api/events/{other.event_id}/seats/A-1/reserve"
    assert (await front.call("POST", path)).status == 404
    event = await front.rig.open_other(same_shard=True, doc=other)

    async def found() -> bool:
        token = front.token(org=event.organization_id)
        return (await front.call("POST", f"/api/events/{event.event_id}/seats/A-1/reserve", token=token)).status == 201

    assert await eventually(found, "the new event sells")


async def test_a_repeat_under_the_same_key_gets_the_first_result(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "click-1"}

    replies = await asyncio.gather(*(front.reserve("A-1", headers=key) for _ in range(10)))

    assert {reply.status for reply in replies} == {201}
    assert len({(reply.data["hold_id"], reply.data["held_until"]) for reply in replies}) == 1


async def test_other_content_under_the_same_key_is_refused(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "click-1"}
    await front.reserve("A-1", headers=key)

    replies = [
        await front.reserve("A-2", headers=key),
        await front.reserve("A-1", {"source": "scanner"}, headers=key),
    ]

    assert [(reply.status, reply.error) for reply in replies] == [(422, "hold_id_reused")] * 2


async def test_a_repeat_after_the_end_says_how_it_ended(front: FrontEnd) -> None:
    key = {"Idempotency-Key": "click-1"}
    held = await front.reserve("A-1", headers=key)
    await front.call("DELETE", f"/api/holds/{held.data['hold_id']}")

    reply = await front.reserve("A-1", headers=key)

    assert (reply.status, reply.error) == (409, "hold_released")


async def test_what_is_not_committed_in_time_is_unknown_and_a_repeat_finds_out(
    redis_url: str, database_dsn: str
) -> None:
    async with serving(redis_url, database_dsn, persist=False) as front:
        key = {"Idempotency-Key": "click-1"}
        first = await front.reserve("A-1", headers=key)

        assert (first.status, first.error, first.headers["Retry-After"]) == (503, "unknown_outcome", "1")
        async with running(front.rig.persister().run()):
            assert (await front.reserve("A-1", headers=key)).status == 201


async def test_prefer_is_honoured_where_the_event_leaves_it_to_the_client(redis_url: str, database_dsn: str) -> None:
    fast = {"Prefer": "ack=redis"}
    for rule, achieved, applied in (
        (AckRule.POSTGRES, "postgres", None),
        (AckRule.ON_REQUEST, "redis", "ack=redis"),
        (AckRule.REDIS, "redis", "ack=redis"),
    ):
        async with serving(redis_url, database_dsn, ack=rule) as front:
            reply = await front.reserve("A-1", headers=fast)

            assert (reply.status, reply.data["durability"]) == (201, achieved)
            assert reply.headers.get("Preference-Applied") == applied


async def test_an_event_has_its_own_word_on_durability(redis_url: str, database_dsn: str) -> None:
    policy = msgspec.structs.replace(document().policy, ack=AckRule.POSTGRES)
    async with serving(redis_url, database_dsn, document(policy=policy), ack=AckRule.REDIS) as front:
        assert (await front.reserve("A-1")).data["durability"] == "postgres"


async def test_refusals_are_audited(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        await front.reserve("A-1")
        await front.reserve("A-1", user=uuid4(), headers={"X-Request-ID": "lost-1"})
        rig = front.rig
        # The tallies are written every few seconds, and when the front end stops.
        await front.client.close()

        (audit,) = await rig.audit("seat_reserve_failed")
        assert (audit["changes"]["reason"], audit["request_id"]) == ("seat_held_by_another_user", "lost-1")
