"""allocate_seats: together if possible, nobody left alone, the best that are free.

What it shares with hold_seats is tried here too.
"""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.backend import Holder
from holdfast.engine.layout import EventState, SeatCategory, ZoneDocument, ZoneType, compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.records import pack_stretches, unpack_record
from holdfast.engine.status import Status
from support.drawn import drawn_event
from support.engine import UNLIMITED, Stage, document, seats
from support.scripts import (
    GENEROUS_RULES,
    RULES_BYTES,
    allocate,
    audited,
    backdate,
    call,
    counts,
    entries,
    held,
    operations,
    pairs,
    places_held,
    reap,
    record,
    refused,
    release,
    sell,
    unchanged,
)

TOGETHER = msgspec.structs.replace(UNLIMITED, group_adjacency_strict=True)


async def test_done(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()

    reply = await allocate(on, 4, user=user, hold_id=hold_id, fingerprint="wish", address="a1", cart="cart-1")

    assert reply.status is Status.DONE
    assert (reply.hold_id, reply.seats, reply.quantities) == (hold_id, pairs(on, "A-1", "A-2", "A-3", "A-4"), ())
    assert reply.until_ms == reply.now_ms + on.event.ttl_ms
    stored = await record(on, hold_id)
    assert stored is not None
    assert (stored.user_id, stored.state, stored.seats) == (user, "h", reply.seats)
    assert (stored.fingerprint, stored.address, stored.cart) == ("wish", "a1", "cart-1")
    assert (await counts(on, 0)).held == 4
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids, entry.seq) == ("hold", (hold_id,), reply.position.seq)
    assert unpack_record(entry.body) == stored


async def test_seats_of_some_categories(server_url: str) -> None:
    async with audited(server_url, drawn_event(["i..i|rr.i"], UNLIMITED)) as on:
        wishes: list[tuple[set[SeatCategory], int]] = [
            ({SeatCategory.RESTRICTED_VIEW}, 2),
            ({SeatCategory.AISLE}, 1),
            ({SeatCategory.STANDARD, SeatCategory.AISLE}, 3),
            ({SeatCategory.RESTRICTED_VIEW}, 1),
        ]
        replies = [await allocate(on, count, categories=categories) for categories, count in wishes]

        assert [reply.status for reply in replies] == [Status.DONE] * 3 + [Status.NO_AVAILABLE_SEATS]
        assert [[seat.value for seat in reply.seats] for reply in replies[:3]] == [[5, 6], [0], [1, 2, 3]]


async def test_stale_config_where_redis_does_not_know_what_the_seats_are(server_url: str) -> None:
    async with audited(server_url, drawn_event(["i..i"], UNLIMITED)) as on:
        await on.redis.delete(on.keys.key("kinds"))

        await refused(on, Status.STALE_CONFIG, "allocate_seats", categories=b"i")

        assert (await allocate(on, 2)).status is Status.DONE


async def test_the_best_come_first(on: Stage) -> None:
    taken = [(await allocate(on, 4)).seats for _ in range(3)]

    assert taken == [
        pairs(on, "A-1", "A-2", "A-3", "A-4"),
        pairs(on, "A-5", "A-6", "A-7", "A-8"),
        pairs(on, "B-1", "B-2", "B-3", "B-4"),
    ]
    # The two that are left in row A are still the best pair.
    assert (await allocate(on, 2)).seats == pairs(on, "A-9", "A-10")


async def test_seats_that_come_free_are_the_best_again(on: Stage) -> None:
    first, _, _ = [(await allocate(on, 3)) for _ in range(3)]
    assert first.hold_id is not None
    await release(on, first.hold_id)

    assert (await allocate(on, 3)).seats == first.seats
    # Of the four that are left in row A a single guest takes one that leaves three.
    assert (await allocate(on, 1)).seats == pairs(on, "A-7")


async def test_seats_that_expire_are_the_best_again(on: Stage) -> None:
    first, _ = [(await allocate(on, 4)) for _ in range(2)]
    assert first.hold_id is not None
    await on.lapse(first.hold_id)
    assert await reap(on) == 1

    assert (await allocate(on, 4)).seats == first.seats


async def test_seats_that_are_unblocked_are_the_best_again(on: Stage) -> None:
    await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2"))
    assert (await allocate(on, 2)).seats == pairs(on, "A-3", "A-4")
    await on.backend.unblock_seats(on.event, seats=pairs(on, "A-1", "A-2"))

    assert (await allocate(on, 2)).seats == pairs(on, "A-1", "A-2")


async def test_a_search_for_many_does_not_hide_seats_from_a_search_for_few(on: Stage) -> None:
    await held(on, "A-3")

    assert (await allocate(on, 8)).seats == pairs(on, *[f"B-{n}" for n in range(1, 9)])
    assert (await allocate(on, 5)).seats == pairs(on, *[f"A-{n}" for n in range(4, 9)])
    assert (await allocate(on, 2)).seats == pairs(on, "A-1", "A-2")
    assert (await allocate(on, 2)).seats == pairs(on, "A-9", "A-10")
    assert (await allocate(on, 10)).seats == pairs(on, *[f"C-{n}" for n in range(1, 11)])


async def test_every_seat_can_be_had(on: Stage) -> None:
    given = [(await allocate(on, 1)).seats[0] for _ in range(30)]

    # Two are left in each row as long as another row has more.
    assert [ordinal - row * 11 for row in range(3) for _, ordinal in given[row * 8 : row * 8 + 8]] == [*range(8)] * 3
    assert sorted(given) == list(on.event.seats.values())
    async with unchanged(on):
        assert (await allocate(on, 1)).status is Status.NO_AVAILABLE_SEATS


async def test_gaps_that_are_too_small_are_passed_over(on: Stage) -> None:
    await held(on, "A-3", "A-6")
    await sell(on, await held(on, "A-9"))

    assert (await allocate(on, 3)).seats == pairs(on, "B-1", "B-2", "B-3")
    assert (await allocate(on, 2)).seats == pairs(on, "A-1", "A-2")
    assert (await allocate(on, 2)).seats == pairs(on, "A-4", "A-5")


async def test_a_run_stays_in_its_zone(server_url: str) -> None:
    """The last row of a zone and the first of the next are neighbours in the map, and a wall apart in the house."""
    zones = (
        ZoneDocument("left", ZoneType.RESERVED_SEATING, "Left", 3, seats(1, 3, "left-")),
        ZoneDocument("right", ZoneType.RESERVED_SEATING, "Right", 3, seats(1, 3, "right-")),
    )
    async with audited(server_url, msgspec.structs.replace(document(), zones=zones)) as on:
        await held(on, "left-A-1")

        async with unchanged(on):
            assert (await allocate(on, 3, zones=[0])).status is Status.NO_AVAILABLE_SEATS
        assert (await allocate(on, 3, zones=[1])).seats == pairs(on, "right-A-1", "right-A-2", "right-A-3")
        assert (await allocate(on, 2, zones=[0])).seats == pairs(on, "left-A-2", "left-A-3")
        assert (await counts(on, 1)).held == 3


async def test_runs_across_the_blocks_in_which_the_map_is_read(server_url: str) -> None:
    """The map is read in blocks that overlap, so that no run is missed between two."""
    row = seats(1, 50_000)
    blocked = frozenset(seat.seat_id for seat in row)
    async with audited(server_url, document(rows=1, per_row=50_000, blocked_seat_ids=blocked)) as on:
        starts = [*range(4091, 4098), *range(8186, 8194), *range(40_954, 40_962), 49_996]
        for start in starts:
            run = pairs(on, *[f"A-{start + offset + 1}" for offset in range(4)])
            await on.backend.unblock_seats(on.event, seats=run)

            async with unchanged(on):
                assert (await allocate(on, 5)).status is Status.NO_AVAILABLE_SEATS
            reply = await allocate(on, 4)

            assert (reply.status, reply.seats) == (Status.DONE, run)
            assert reply.hold_id is not None
            await release(on, reply.hold_id)
            await on.backend.block_seats(on.event, seats=run)


async def test_overdue_seats_are_given_again(on: Stage) -> None:
    """Nothing is free but what overdue holds have, here side by side with a free seat."""
    kept = await on.hold(*[seat for seat in on.event.seats if seat not in ("B-4", "B-5", "B-6", "B-7")])
    overdue = [await held(on, "B-4"), await held(on, "B-5", "B-6")]
    await on.lapse(*overdue)

    reply = await allocate(on, 4)

    assert (reply.status, reply.seats) == (Status.DONE, pairs(on, "B-4", "B-5", "B-6", "B-7"))
    assert await operations(on) == ["open", "hold", "hold", "hold", "expire", "hold"]
    assert set((await entries(on))[-2].hold_ids) == set(overdue)
    assert kept.status is Status.DONE
    assert (await counts(on, 0)).held == 30


async def test_free_seats_are_preferred_to_overdue_ones(on: Stage) -> None:
    overdue = await held(on, "A-1", "A-2")
    await on.lapse(overdue)

    assert (await allocate(on, 2)).seats == pairs(on, "A-3", "A-4")
    assert await operations(on) == ["open", "hold", "hold"]


async def test_overdue_holds_make_room(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=10, capacity=4)) as on:
        await on.lapse(await held(on, "A-9", "A-10"))
        await held(on, "A-5")

        async with unchanged(on):
            reply = await allocate(on, 4)
        assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((0, 1),))

        # With the overdue seats there are five behind the fifth, of which three leave two.
        assert (await allocate(on, 3)).seats == pairs(on, "A-6", "A-7", "A-8")
        assert await operations(on) == ["open", "hold", "hold", "expire", "hold"]
        assert (await counts(on, 0)).held == 4


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "allocate_seats")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("rules", b"x" * (RULES_BYTES - 1)),
        ("meta", b"x" * 4097),
        ("hold", b"x" * 15),
        ("fingerprint", b"x" * 17),
        ("fingerprint", b"two\nlines"),
        ("user", b"x" * 17),
        ("address", b"x" * 15),
        ("address", b"two\nlines"),
        ("cart", b"x" * 256),
        ("cart", b"two\nlines"),
        ("ttl_ms", b"999"),
        ("ttl_ms", b"soon"),
        ("stretches", b""),
        ("stretches", b"x" * 9),
        ("stretches", b"x" * 11),
        ("stretches", pack_stretches([(0, 0, 29), (1, 30, 30), (0, 0, 29)])),  # A zone twice.
        ("stretches", pack_stretches([(0, 30, 29)])),  # The first behind the last.
        ("stretches", pack_stretches([(0, 0, 16_777_216)])),
        ("stretches", pack_stretches((zone, 0, 29) for zone in range(101))),
        ("categories", b"x"),
        ("categories", b".ri."),
        ("count", b""),
        ("count", b"0"),
        ("count", b"-2"),
        ("count", b"2.5"),
        ("count", b"two"),
        ("count", b"16777216"),
        ("count", b"9" * 400),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, "allocate_seats", **{argument: value})

    assert (await call(on, "allocate_seats"))["status"] is Status.DONE


async def test_too_many_seats(server_url: str) -> None:
    policy = Policy(max_seats_per_booking=3, rate_limit_seats=0)
    async with audited(server_url, document(policy=policy)) as on:
        async with unchanged(on):
            assert (await allocate(on, 4)).status is Status.TOO_MANY_SEATS

        assert (await allocate(on, 3)).status is Status.DONE


@pytest.mark.parametrize("count", [b"101", b"16777215"])
async def test_too_many_seats_whatever_the_rules_say(on: Stage, count: bytes) -> None:
    await refused(on, Status.TOO_MANY_SEATS, "allocate_seats", rules=GENEROUS_RULES, count=count)


async def test_event_not_found(on: Stage) -> None:
    stranger = compile_event(uuid4(), on.event.document)
    who = Holder(hold_id=uuid4(), user_id=uuid4())

    async with unchanged(on):
        assert (await on.backend.allocate_seats(stranger, who, zones=[0], count=2)).status is Status.EVENT_NOT_FOUND


async def test_hold_id_reused(on: Stage) -> None:
    user = uuid4()
    hold_id = await held(on, "A-1", user=user, fingerprint="one")

    async with unchanged(on):
        assert (await allocate(on, 2, user=user, hold_id=hold_id, fingerprint="two")).status is Status.HOLD_ID_REUSED
        assert (await allocate(on, 2, hold_id=hold_id, fingerprint="one")).status is Status.HOLD_ID_REUSED


async def test_hold_released(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    await allocate(on, 2, user=user, hold_id=hold_id)
    await release(on, hold_id)

    async with unchanged(on):
        assert (await allocate(on, 2, user=user, hold_id=hold_id)).status is Status.HOLD_RELEASED


@pytest.mark.parametrize("reaped", [True, False])
async def test_hold_expired(on: Stage, reaped: bool) -> None:
    user, hold_id = uuid4(), uuid4()
    await allocate(on, 2, user=user, hold_id=hold_id)
    await on.lapse(hold_id)
    if reaped:
        assert await reap(on) == 1

    async with unchanged(on):
        assert (await allocate(on, 2, user=user, hold_id=hold_id)).status is Status.HOLD_EXPIRED


async def test_repeated(on: Stage) -> None:
    """The choice was made once: a repeat gets the same seats, not the next best."""
    user, hold_id = uuid4(), uuid4()
    first = await allocate(on, 3, user=user, hold_id=hold_id)

    async with unchanged(on):
        again = await allocate(on, 3, user=user, hold_id=hold_id)

    assert again.status is Status.REPEATED
    assert (again.hold_id, again.seats, again.until_ms) == (hold_id, first.seats, first.until_ms)
    assert again.position == first.position


async def test_stale_config(on: Stage) -> None:
    old = on.event
    await on.change(name="Another night")
    who = Holder(hold_id=uuid4(), user_id=uuid4())

    async with unchanged(on):
        assert (await on.backend.allocate_seats(old, who, zones=[0], count=2)).status is Status.STALE_CONFIG


async def test_event_unavailable(on: Stage) -> None:
    await on.change(state=EventState.CANCELLED)

    async with unchanged(on):
        assert (await allocate(on, 2)).status is Status.EVENT_UNAVAILABLE


@pytest.mark.parametrize("state", [EventState.DRAFT, EventState.CLOSED, EventState.ARCHIVED])
async def test_event_not_available(on: Stage, state: EventState) -> None:
    await on.change(state=state)

    async with unchanged(on):
        assert (await allocate(on, 2)).status is Status.EVENT_NOT_AVAILABLE


async def test_event_sales_closed(server_url: str) -> None:
    async with audited(server_url, document(sale_start=datetime.now(UTC) + timedelta(hours=1))) as on:
        async with unchanged(on):
            early = await allocate(on, 2)
        assert (early.status, early.until_ms) == (Status.EVENT_SALES_CLOSED, on.event.opens_ms)

        await on.change(sale_start=None, sale_end=datetime.now(UTC) - timedelta(seconds=1))
        async with unchanged(on):
            late = await allocate(on, 2)
        assert (late.status, late.until_ms) == (Status.EVENT_SALES_CLOSED, 0)


async def test_busy(server_url: str) -> None:
    async with audited(server_url, max_backlog=2) as on:
        assert (await allocate(on, 2)).status is Status.DONE
        async with unchanged(on):
            assert (await allocate(on, 2)).status is Status.BUSY

        await on.redis.set(on.keys.key("mark"), 2)
        assert (await allocate(on, 2)).status is Status.DONE


async def test_seat_not_found(on: Stage) -> None:
    """A floor has no seats to put next to each other, and a zone that does not exist has none at all."""
    async with unchanged(on):
        assert (await allocate(on, 2, zones=[1])).status is Status.SEAT_NOT_FOUND
    await refused(on, Status.SEAT_NOT_FOUND, "allocate_seats", stretches=pack_stretches([(7, 0, 29)]))


async def test_user_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_user=4, rate_limit_seats=0))) as on:
        user = uuid4()
        first = await allocate(on, 3, user=user)

        async with unchanged(on):
            reply = await allocate(on, 2, user=user)

        assert (reply.status, reply.until_ms) == (Status.USER_LIMIT_EXCEEDED, first.until_ms)
        assert (await allocate(on, 1, user=user)).status is Status.DONE


async def test_address_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_ip=4, rate_limit_seats=0))) as on:
        first = await allocate(on, 3, address="home")

        async with unchanged(on):
            reply = await allocate(on, 2, address="home")

        assert (reply.status, reply.until_ms) == (Status.ADDRESS_LIMIT_EXCEEDED, first.until_ms)
        assert (await allocate(on, 2, address="work")).status is Status.DONE


async def test_rate_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(rate_limit_seats=4, rate_limit_seconds=60))) as on:
        user, hold_id = uuid4(), uuid4()
        await allocate(on, 3, user=user, hold_id=hold_id)
        made_ms = await backdate(on, hold_id, 30_000)

        async with unchanged(on):
            reply = await allocate(on, 2, user=user)
        assert (reply.status, reply.until_ms) == (Status.RATE_LIMIT_EXCEEDED, made_ms + 60_000)

        await backdate(on, hold_id, 30_000)
        assert (await allocate(on, 2, user=user)).status is Status.DONE


async def test_no_available_seats(on: Stage) -> None:
    async with unchanged(on):
        assert (await allocate(on, 31)).status is Status.NO_AVAILABLE_SEATS

    assert (await allocate(on, 30)).status is Status.DONE


async def test_no_available_seats_together(server_url: str) -> None:
    async with audited(server_url, document(policy=TOGETHER)) as on:
        async with unchanged(on):
            assert (await allocate(on, 11)).status is Status.NO_AVAILABLE_SEATS

        assert (await allocate(on, 10)).status is Status.DONE


async def test_no_available_seats_though_enough_are_overdue_apart(server_url: str) -> None:
    async with audited(server_url, document(policy=TOGETHER)) as on:
        await held(on, *[seat for seat in on.event.seats if seat not in ("A-1", "A-3")])
        await on.lapse(await held(on, "A-1"), await held(on, "A-3"))

        async with unchanged(on):
            assert (await allocate(on, 2)).status is Status.NO_AVAILABLE_SEATS


async def test_overdue_seats_apart_are_better_than_none(on: Stage) -> None:
    await held(on, *[seat for seat in on.event.seats if seat not in ("A-1", "A-3")])
    await on.lapse(await held(on, "A-1"), await held(on, "A-3"))

    assert (await allocate(on, 2)).seats == pairs(on, "A-1", "A-3")


async def test_a_zone_without_room_is_passed_over(server_url: str) -> None:
    zones = (
        ZoneDocument("left", ZoneType.RESERVED_SEATING, "Left", 2, seats(1, 6, "left-")),
        ZoneDocument("right", ZoneType.RESERVED_SEATING, "Right", 6, seats(1, 6, "right-")),
    )
    async with audited(server_url, msgspec.structs.replace(document(), zones=zones)) as on:
        assert (await allocate(on, 4, zones=[0, 1])).seats == pairs(on, *[f"right-A-{n}" for n in range(1, 5)])
        async with unchanged(on):
            reply = await allocate(on, 4, zones=[0, 1])

        assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((0, 2),))
        assert (await allocate(on, 2, zones=[0, 1])).seats == pairs(on, "left-A-1", "left-A-2")


async def test_block_at_capacity(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=10, capacity=3)) as on:
        await held(on, "A-1", "A-2")

        async with unchanged(on):
            reply = await allocate(on, 4)

        assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((0, 3),))
        assert (await allocate(on, 1)).status is Status.DONE


async def test_a_missing_run_takes_precedence_over_a_full_zone(server_url: str) -> None:
    """A smaller party may still find seats, which the second answer would deny."""
    async with audited(server_url, document(rows=1, per_row=3, capacity=2, policy=TOGETHER)) as on:
        await held(on, "A-2")

        async with unchanged(on):
            assert (await allocate(on, 2)).status is Status.NO_AVAILABLE_SEATS


async def test_places_on_the_floor_do_not_matter_to_seats(on: Stage) -> None:
    await places_held(on, 50)

    assert (await allocate(on, 10)).status is Status.DONE
