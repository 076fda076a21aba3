"""expire_holds: the reaper's bounded batch."""

import asyncio
from collections import Counter
from uuid import UUID, uuid4

import pytest

from holdfast.engine.policy import Policy
from holdfast.engine.records import unpack_blocks
from holdfast.engine.status import Status
from support.engine import Stage, document
from support.scripts import (
    audited,
    call,
    counts,
    entries,
    held,
    pairs,
    places_held,
    reap,
    record,
    refused,
    release,
    seat_byte,
    sell,
    unchanged,
)


async def test_done(on: Stage) -> None:
    first, second, third = await held(on, "A-1", "A-2"), await places_held(on, 4), await held(on, "A-3")
    await on.lapse(first, second)

    reply = await on.backend.expire_holds(on.event.organization_id, on.event.event_id, limit=100)

    assert (reply.status, reply.expired, reply.forgotten) == (Status.DONE, 2, 0)
    assert (await seat_byte(on, "A-1"), await seat_byte(on, "A-3")) == (b".", b"h")
    assert ((await counts(on, 0)).held, (await counts(on, 1)).held) == (1, 0)
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.seq) == ("expire", reply.position.seq)
    assert set(entry.hold_ids) == {first, second}
    blocks, reason = unpack_blocks(entry.body, 2)
    by_hold = dict(zip(entry.hold_ids, blocks, strict=True))
    assert by_hold[first] == (pairs(on, "A-1", "A-2"), ())
    assert by_hold[second] == ((), ((1, 4),))
    assert reason == b"ttl_expired"
    stored, live = await record(on, first), await record(on, third)
    assert stored is not None
    assert live is not None
    assert (stored.state, stored.seq, live.state) == ("x", reply.position.seq, "h")


async def test_done_with_nothing_to_do_writes_nothing(on: Stage) -> None:
    await held(on, "A-1")

    async with unchanged(on):
        reply = await on.backend.expire_holds(on.event.organization_id, on.event.event_id, limit=100)

    assert (reply.status, reply.expired, reply.forgotten, reply.position.seq) == (Status.DONE, 0, 0, 0)


async def test_a_call_is_bounded_and_takes_the_oldest_first(on: Stage) -> None:
    hold_ids = [await held(on, f"A-{number}") for number in range(1, 8)]
    ends = {hold_id.bytes: 1000 - i for i, hold_id in enumerate(hold_ids)}
    await on.redis.zadd(on.keys.key("expiry"), ends)

    assert [await reap(on, limit=3) for _ in range(4)] == [3, 3, 1, 0]
    expired = [hold_id for entry in await entries(on) if entry.operation == "expire" for hold_id in entry.hold_ids]
    assert expired == hold_ids[::-1]


async def test_two_hundred_at_once(server_url: str) -> None:
    async with audited(server_url, document(floor=500)) as on:
        hold_ids = [await places_held(on, 2) for _ in range(210)]
        await on.lapse(*hold_ids)

        assert [await reap(on, limit=200) for _ in range(3)] == [200, 10, 0]
        assert (await counts(on, 1)).held == 0


async def test_nothing_ends_twice_however_many_reapers_run(on: Stage) -> None:
    hold_ids = [await held(on, seat) for seat in on.event.seats]
    await on.lapse(*hold_ids)

    expired = await asyncio.gather(*[reap(on, limit=4) for _ in range(12)])

    assert sum(expired) == 30
    logged = Counter(
        hold_id for entry in await entries(on) if entry.operation == "expire" for hold_id in entry.hold_ids
    )
    assert logged == Counter(hold_ids)
    assert (await counts(on, 0)).held == 0


async def test_ended_holds_are_forgotten_when_their_time_on_record_is_over(on: Stage) -> None:
    released, sold, lapsed, live = [await held(on, seat) for seat in ("A-1", "A-2", "A-3", "A-4")]
    await release(on, released)
    await sell(on, sold)
    await on.lapse(lapsed)
    await reap(on)
    await on.age_ended()

    reply = await on.backend.expire_holds(on.event.organization_id, on.event.event_id, limit=100)

    assert (reply.expired, reply.forgotten, reply.position.seq) == (0, 3, 0)
    assert [await record(on, hold_id) for hold_id in (released, sold, lapsed)] == [None] * 3
    assert await record(on, live) is not None
    # What is sold is sold for good: only the memory of how goes.
    assert await seat_byte(on, "A-2") == b"s"


async def test_forgetting_is_bounded_too(on: Stage) -> None:
    for seat in ("A-1", "A-2", "A-3"):
        await release(on, await held(on, seat))
    await on.age_ended()

    replies = [await call(on, "expire_holds", limit=b"2") for _ in range(3)]

    assert [reply["forgotten"] for reply in replies] == [2, 1, 0]


async def test_holds_stay_on_record_as_long_as_the_caller_says(on: Stage) -> None:
    hold_id = await held(on, "A-1")
    await on.lapse(hold_id)

    reply = await call(on, "expire_holds", retention_ms=b"5000")

    assert await on.redis.zscore(on.keys.key("ended"), hold_id.bytes) == reply["now_ms"] + 5000
    assert (await call(on, "expire_holds"))["forgotten"] == 0


async def test_the_lists_of_users_and_addresses_forget_too(server_url: str) -> None:
    policy = Policy(max_holds_per_ip=50, rate_limit_seats=0)
    async with audited(server_url, document(policy=policy)) as on:
        user = uuid4()
        gone, kept = [await held(on, seat, user=user, address="home") for seat in ("A-1", "A-2")]
        alone = uuid4()
        others = await held(on, "A-3", user=alone, address="work")
        await release(on, gone, others)
        await on.age_ended()

        await reap(on)

        async def listed(field: bytes) -> bytes | None:
            return await on.redis.hget(on.keys.key("holds"), field)

        assert await listed(b"u" + user.bytes) == await listed(b"ahome") == kept.bytes
        # An empty list is no list: a field for every user who ever came would never go away.
        assert await listed(b"u" + alone.bytes) is None
        assert await listed(b"awork") is None
        assert await on.redis.hlen(on.keys.key("holds")) == 3


async def test_everything_is_gone_when_everything_is_forgotten(on: Stage) -> None:
    hold_ids: list[UUID] = [await held(on, seat) for seat in on.event.seats]
    await release(on, *hold_ids)
    await on.age_ended()
    await reap(on)

    assert not await on.redis.exists(*[on.keys.key(what) for what in ("holds", "expiry", "ended")])


async def test_fenced(on: Stage) -> None:
    await on.lapse(await held(on, "A-1"))
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "expire_holds")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("retention_ms", b""),
        ("retention_ms", b"-1"),
        ("retention_ms", b"2592000001"),
        ("limit", b""),
        ("limit", b"0"),
        ("limit", b"-1"),
        ("limit", b"201"),
        ("limit", b"all"),
        ("limit", b"1.5"),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await on.lapse(await held(on, "A-1"))

    await refused(on, Status.INVALID_REQUEST, "expire_holds", **{argument: value})

    assert (await call(on, "expire_holds"))["expired"] == 1


async def test_event_not_found(on: Stage) -> None:
    await on.lapse(await held(on, "A-1"))

    async with unchanged(on):
        reply = await on.backend.expire_holds(uuid4(), on.event.event_id, limit=100)

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_arguments_at_their_bounds(on: Stage) -> None:
    await on.lapse(await held(on, "A-1"))

    reply = await call(on, "expire_holds", meta=b"m" * 4096, retention_ms=b"2592000000", limit=b"200")

    assert (reply["status"], reply["expired"]) == (Status.DONE, 1)
