"""offer_seats: the nearest block to what somebody could not have, named or held."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.choosing import Wish, nearest_block
from holdfast.engine.layout import EventState, compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.records import pack_stretches
from holdfast.engine.status import Status
from support.drawn import drawn_event
from support.engine import Stage, document
from support.scripts import (
    GENEROUS_RULES,
    audited,
    backdate,
    call,
    entries,
    held,
    operations,
    pairs,
    reap,
    refused,
    release,
    unchanged,
)

LENIENT = Policy(rate_limit_seats=0, max_seats_per_booking=100)
STRICT = Policy(rate_limit_seats=0, max_seats_per_booking=100, orphan_avoidance_strict=True)


async def offer(
    on: Stage,
    count: int,
    *,
    near: int = 0,
    take: bool = True,
    zones: Sequence[int] = (0,),
    user: UUID | None = None,
    **holder: Any,
) -> HoldReply:
    who = Holder(hold_id=holder.pop("hold_id", None) or uuid4(), user_id=user or uuid4(), **holder)
    return await on.backend.offer_seats(on.event, who, zones=zones, count=count, near=near, take=take)


async def test_done(on: Stage) -> None:
    """Seats 2 and 3 are nearer, but would leave the first one alone."""
    hold_id, near = uuid4(), on.event.seats["B-4"].value
    await held(on, "B-4", "B-5")

    reply = await offer(on, 2, near=near, hold_id=hold_id, cart="cart-1")

    assert (reply.status, reply.hold_id, reply.seats) == (Status.DONE, hold_id, pairs(on, "B-6", "B-7"))
    assert reply.until_ms == reply.now_ms + on.event.ttl_ms
    assert await operations(on) == ["open", "hold", "hold"]


async def test_offered(on: Stage) -> None:
    """Named and not held: nothing is written, and the same is offered to the next."""
    await held(on, "B-4", "B-5")

    async with unchanged(on):
        replies = [await offer(on, 2, near=on.event.seats["B-4"].value, take=False) for _ in range(2)]

    for reply in replies:
        assert (reply.status, reply.seats) == (Status.OFFERED, pairs(on, "B-6", "B-7"))
        assert (reply.hold_id, reply.until_ms, reply.position.seq) == (None, 0, 0)


async def test_seats_left_alone_by_an_offer_are_noted(server_url: str) -> None:
    policy = Policy(rate_limit_seats=0, orphan_audit_enabled=True)
    async with audited(server_url, drawn_event(["..."], policy)) as on:
        assert (await offer(on, 2)).status is Status.DONE

        assert [seat.value for seat in (await entries(on))[-1].orphans] == [2]


async def test_a_hold_of_an_offer_is_shorter_in_a_zone_that_fills_up(server_url: str) -> None:
    policy = Policy(rate_limit_seats=0, min_hold_ttl_minutes=2, adaptive_hold_from_percent=0)
    async with audited(server_url, document(rows=1, per_row=10, policy=policy)) as on:
        await held(on, "A-1", "A-2", "A-3", "A-4", "A-5")

        reply = await offer(on, 2)

        assert reply.until_ms - reply.now_ms == 360_000


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "offer_seats")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("hold", b"x" * 15),
        ("ttl_ms", b"999"),
        ("stretches", b"x" * 9),
        ("count", b"0"),
        ("near", b""),
        ("near", b"-1"),
        ("near", b"16777216"),
        ("take", b"2"),
        ("take", b"yes"),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, "offer_seats", **{argument: value})

    assert (await call(on, "offer_seats"))["status"] is Status.DONE


async def test_too_many_seats(on: Stage) -> None:
    await refused(on, Status.TOO_MANY_SEATS, "offer_seats", rules=GENEROUS_RULES, count=b"101")


async def test_event_not_found(on: Stage) -> None:
    stranger, who = compile_event(uuid4(), on.event.document), Holder(hold_id=uuid4(), user_id=uuid4())

    async with unchanged(on):
        reply = await on.backend.offer_seats(stranger, who, zones=[0], count=2, near=0, take=True)

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_hold_id_reused(on: Stage) -> None:
    hold_id = await held(on, "A-1")

    async with unchanged(on):
        assert (await offer(on, 2, hold_id=hold_id)).status is Status.HOLD_ID_REUSED


async def test_hold_released(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    await offer(on, 2, user=user, hold_id=hold_id)
    await release(on, hold_id)

    async with unchanged(on):
        assert (await offer(on, 2, user=user, hold_id=hold_id)).status is Status.HOLD_RELEASED


async def test_hold_expired(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    await offer(on, 2, user=user, hold_id=hold_id)
    await on.lapse(hold_id)
    assert await reap(on) == 1

    async with unchanged(on):
        assert (await offer(on, 2, user=user, hold_id=hold_id)).status is Status.HOLD_EXPIRED


async def test_repeated(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    first = await offer(on, 2, user=user, hold_id=hold_id)

    async with unchanged(on):
        again = await offer(on, 2, user=user, hold_id=hold_id)

    assert (again.status, again.seats, again.position) == (Status.REPEATED, first.seats, first.position)


async def test_stale_config(on: Stage) -> None:
    old, who = on.event, Holder(hold_id=uuid4(), user_id=uuid4())
    await on.change(name="Another night")

    async with unchanged(on):
        reply = await on.backend.offer_seats(old, who, zones=[0], count=2, near=0, take=True)

    assert reply.status is Status.STALE_CONFIG


async def test_event_unavailable(on: Stage) -> None:
    await on.change(state=EventState.CANCELLED)

    async with unchanged(on):
        assert (await offer(on, 2)).status is Status.EVENT_UNAVAILABLE


async def test_event_not_available(on: Stage) -> None:
    await on.change(state=EventState.CLOSED)

    async with unchanged(on):
        assert (await offer(on, 2)).status is Status.EVENT_NOT_AVAILABLE


async def test_event_sales_closed(server_url: str) -> None:
    async with audited(server_url, document(sale_start=datetime.now(UTC) + timedelta(hours=1))) as on, unchanged(on):
        assert (await offer(on, 2)).status is Status.EVENT_SALES_CLOSED


async def test_busy(server_url: str) -> None:
    async with audited(server_url, max_backlog=1) as on, unchanged(on):
        assert (await offer(on, 2)).status is Status.BUSY


async def test_seat_not_found(on: Stage) -> None:
    async with unchanged(on):
        assert (await offer(on, 2, zones=[1])).status is Status.SEAT_NOT_FOUND
    await refused(on, Status.SEAT_NOT_FOUND, "offer_seats", stretches=pack_stretches([(7, 0, 29)]))


async def test_user_limit_exceeded(server_url: str) -> None:
    policy = Policy(max_holds_per_user=1, rate_limit_seats=0)
    async with audited(server_url, document(policy=policy)) as on, unchanged(on):
        assert (await offer(on, 2)).status is Status.USER_LIMIT_EXCEEDED


async def test_address_limit_exceeded(server_url: str) -> None:
    policy = Policy(max_holds_per_ip=1, rate_limit_seats=0)
    async with audited(server_url, document(policy=policy)) as on, unchanged(on):
        assert (await offer(on, 2, address="home")).status is Status.ADDRESS_LIMIT_EXCEEDED


async def test_rate_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(rate_limit_seats=3, rate_limit_seconds=60))) as on:
        user = uuid4()
        made_ms = await backdate(on, await held(on, "A-1", "A-2", user=user), 30_000)

        async with unchanged(on):
            reply = await offer(on, 2, user=user, take=False)

        assert (reply.status, reply.until_ms) == (Status.RATE_LIMIT_EXCEEDED, made_ms + 60_000)


async def test_no_available_seats(server_url: str) -> None:
    """Never apart, and never more than a zone's capacity allows."""
    async with audited(server_url, drawn_event([".h.h.", "h"], LENIENT)) as on, unchanged(on):
        assert (await offer(on, 2, zones=[0, 1])).status is Status.NO_AVAILABLE_SEATS
    async with audited(server_url, document(rows=1, per_row=10, capacity=2)) as on:
        await held(on, "A-1")
        async with unchanged(on):
            assert (await offer(on, 2)).status is Status.NO_AVAILABLE_SEATS
    async with audited(server_url, drawn_event(["..."], STRICT)) as on, unchanged(on):
        assert (await offer(on, 2)).status is Status.NO_AVAILABLE_SEATS


ROWS = st.text("...hhh", min_size=1, max_size=14) | st.sampled_from(
    ["h" * 700, "." * 40, "h" * 1500 + "..." + "h" * 900]
)
DRAWINGS = st.lists(st.lists(ROWS, min_size=1, max_size=8).map("|".join), min_size=1, max_size=3)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(drawings=DRAWINGS, count=st.integers(1, 5), where=st.floats(0, 1), strict=st.booleans())
@example(drawings=["..h" + "h" * 5000 + "|....|" + "h" * 5000 + "|.."], count=2, where=0.6, strict=True)
@example(drawings=["." * 9000], count=2, where=0.5, strict=True)
@example(drawings=["....." + "|hhh" * 1500 + "|....."], count=3, where=0.5, strict=False)
@example(drawings=["hh", "|".join(["..."] * 4)], count=2, where=0, strict=False)
def test_redis_finds_the_block_that_the_rules_say(
    server_url: str, drawings: Sequence[str], count: int, where: float, strict: bool
) -> None:
    asyncio.run(_compare(server_url, drawings, Wish(count, strict), where))


async def _compare(url: str, drawings: Sequence[str], wish: Wish, where: float) -> None:
    """Take the nearest block again and again: each time the rules and Redis agree."""
    policy = STRICT if wish.orphans_refused else LENIENT
    async with audited(url, drawn_event(drawings, policy)) as on:
        zones, status = on.event.zones, Status.DONE
        near = int(where * (len(on.event.map) - 1))
        goals = [near - zone.first if zone.first <= near <= zone.last else 0 for zone in zones]
        for _ in range(12):
            places = await on.redis.get(on.keys.key("map")) or b""
            choice = nearest_block([places[zone.first : zone.last + 1] for zone in zones], goals, wish)
            reply = await offer(on, wish.count, near=near, zones=range(len(zones)))
            status = reply.status
            if choice is None:
                assert status is Status.NO_AVAILABLE_SEATS
                break
            zone = zones[choice.zone]
            assert reply.seats == tuple((zone.index, zone.first + place) for place in choice.places)
