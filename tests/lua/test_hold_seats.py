"""hold_seats: named seats and general-admission quantities, all or nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.backend import NEVER_MS, Holder
from holdfast.engine.layout import EventState, ZoneDocument, ZoneType, compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.records import pack_pairs, unpack_blocks, unpack_record
from holdfast.engine.status import Status
from support.engine import Stage, accessible_document, document, seats
from support.scripts import (
    GENEROUS_RULES,
    RETENTION_MS,
    RULES_BYTES,
    audited,
    backdate,
    call,
    counts,
    entries,
    held,
    kept_for_ms,
    operations,
    pairs,
    places_held,
    reap,
    record,
    refused,
    release,
    seat_byte,
    sell,
    take_places,
    unchanged,
)

BEYOND_THE_MAP = 4_000_000
SEPARATOR = 10  # The byte after the ten seats of row A.


async def test_done(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()

    reply = await on.hold("A-1", "B-3", user=user, hold_id=hold_id, fingerprint="wish", address="a1", cart="cart-1")

    assert reply.status is Status.DONE
    assert reply.hold_id == hold_id
    assert reply.seats == pairs(on, "A-1", "B-3")
    assert reply.quantities == ()
    assert reply.until_ms == reply.now_ms + on.event.ttl_ms
    stored = await record(on, hold_id)
    assert stored is not None
    assert (stored.user_id, stored.state, stored.seq) == (user, "h", reply.position.seq)
    assert (stored.created_ms, stored.ttl_ms) == (reply.now_ms, on.event.ttl_ms)
    assert (stored.seats, stored.quantities) == (reply.seats, ())
    assert (stored.fingerprint, stored.address, stored.cart) == ("wish", "a1", "cart-1")
    assert (stored.checkout, stored.extension) == ("", "")
    assert await on.redis.zscore(on.keys.key("expiry"), hold_id.bytes) == reply.until_ms
    assert (await counts(on, 0)).held == 2


async def test_done_is_one_log_entry_with_the_whole_record(on: Stage) -> None:
    reply = await on.hold("A-1", "A-2", meta=b'{"ip":"::1"}')

    opened, entry = await entries(on)
    assert opened.operation == "open"
    assert (entry.operation, entry.seq, entry.at_ms) == ("hold", reply.position.seq, reply.now_ms)
    assert (entry.organization_id, entry.event_id) == (on.event.organization_id, on.event.event_id)
    assert entry.hold_ids == (reply.hold_id,)
    assert entry.meta == b'{"ip":"::1"}'
    assert reply.hold_id is not None
    assert unpack_record(entry.body) == await record(on, reply.hold_id)
    assert (await on.log())[-1][0] == b"1-%d" % reply.position.seq


async def test_done_for_seats_and_places_together(on: Stage) -> None:
    who = Holder(hold_id=uuid4(), user_id=uuid4())

    reply = await on.backend.hold_seats(on.event, who, seats=pairs(on, "C-10", "A-1"), quantities=[(1, 7)])

    assert reply.status is Status.DONE
    assert (reply.seats, reply.quantities) == (pairs(on, "C-10", "A-1"), ((1, 7),))
    assert ((await counts(on, 0)).held, (await counts(on, 1)).held) == (2, 7)


async def test_done_for_the_largest_call(on: Stage) -> None:
    everything = list(on.event.seats.values())

    reply = await on.backend.hold_seats(
        on.event, Holder(hold_id=uuid4(), user_id=uuid4()), seats=everything, quantities=[(1, 50)]
    )

    assert reply.status is Status.DONE
    assert len(reply.seats) == 30


@pytest.mark.parametrize("ttl_ms", [1_000, 86_400_000])
async def test_done_with_a_time_to_live_of_its_own(on: Stage, ttl_ms: int) -> None:
    reply = await on.hold("A-1", ttl_ms=ttl_ms)

    assert reply.until_ms == reply.now_ms + ttl_ms


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "hold_seats")


BAD_ARGUMENTS: list[tuple[str, bytes]] = [
    ("scope", b"x" * 31),
    ("scope", b"x" * 33),
    ("rules", b""),
    ("rules", b"x" * (RULES_BYTES - 1)),
    ("rules", b"x" * (RULES_BYTES + 1)),
    ("meta", b"x" * 4097),
    ("hold", b""),
    ("hold", b"x" * 15),
    ("hold", b"x" * 17),
    ("fingerprint", b"x" * 17),
    ("fingerprint", b"two\nlines"),
    ("user", b""),
    ("user", b"x" * 15),
    ("user", b"x" * 17),
    ("address", b"x" * 15),
    ("address", b"two\nlines"),
    ("cart", b"x" * 256),
    ("cart", b"two\nlines"),
    ("ttl_ms", b""),
    ("ttl_ms", b"soon"),
    ("ttl_ms", b"nan"),
    ("ttl_ms", b"inf"),
    ("ttl_ms", b"999"),
    ("ttl_ms", b"-600000"),
    ("ttl_ms", b"1000.5"),
    ("ttl_ms", b"86400001"),
    ("ttl_ms", b"1e30"),
    ("seats", b""),
    ("seats", b"x"),
    ("seats", b"x" * 7),
    ("quantities", b"x" * 5),
    ("quantities", b"x" * 13),
]


@pytest.mark.parametrize(("argument", "value"), BAD_ARGUMENTS)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, "hold_seats", **{argument: value})

    assert (await call(on, "hold_seats"))["status"] is Status.DONE


WISHES: list[dict[str, Any]] = [
    {"seats": [(0, 0), (0, 1), (0, 0)]},
    {"seats": [(0, 0), (2, 0)]},  # The same seat, said to be in another zone.
    {"quantities": [(1, 1), (1, 1)]},
    {"quantities": [(1, 0)]},
    {"seats": [(0, 0)], "quantities": [(1, 0)]},
    {"seats": [(0, 0)], "quantities": [(0, 1)]},  # A zone has seats or places, never both.
    {},
]


@pytest.mark.parametrize("wish", WISHES, ids=str)
async def test_invalid_request_for_a_wish_that_contradicts_itself(on: Stage, wish: dict[str, Any]) -> None:
    async with unchanged(on):
        reply = await on.backend.hold_seats(on.event, Holder(hold_id=uuid4(), user_id=uuid4()), **wish)

    assert reply.status is Status.INVALID_REQUEST
    assert reply.hold_id is None


async def test_too_many_seats_for_the_policy(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_seats_per_booking=3, rate_limit_seats=0))) as on:
        async with unchanged(on):
            assert (await on.hold("A-1", "A-2", "A-3", "A-4")).status is Status.TOO_MANY_SEATS
            assert (await take_places(on, 4)).status is Status.TOO_MANY_SEATS
            who = Holder(hold_id=uuid4(), user_id=uuid4())
            mixed = await on.backend.hold_seats(on.event, who, seats=pairs(on, "A-1", "A-2"), quantities=[(1, 2)])
            assert mixed.status is Status.TOO_MANY_SEATS

        assert (await on.hold("A-1", "A-2", "A-3")).status is Status.DONE


async def test_too_many_seats_whatever_the_rules_say(on: Stage) -> None:
    """Rules are packed by the caller; a hundred units is the script's own bound."""
    many = pack_pairs((0, ordinal) for ordinal in range(101))

    await refused(on, Status.TOO_MANY_SEATS, "hold_seats", rules=GENEROUS_RULES, seats=many)
    await refused(
        on, Status.TOO_MANY_SEATS, "hold_seats", rules=GENEROUS_RULES, seats=b"", quantities=pack_pairs([(1, 101)])
    )
    await refused(on, Status.TOO_MANY_SEATS, "hold_seats", rules=GENEROUS_RULES, seats=many * 100)
    await refused(on, Status.TOO_MANY_SEATS, "hold_seats", rules=GENEROUS_RULES, quantities=many * 100)


@pytest.mark.parametrize("quantity", [101, 2**31, 2**32 - 1])
async def test_too_many_seats_for_a_huge_quantity(on: Stage, quantity: int) -> None:
    async with unchanged(on):
        assert (await take_places(on, quantity)).status is Status.TOO_MANY_SEATS


async def test_event_not_found_for_another_organisation(on: Stage) -> None:
    """The same event id under another organisation is another event, and there is none."""
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply = await on.backend.hold_seats(stranger, Holder(hold_id=uuid4(), user_id=uuid4()), seats=pairs(on, "A-1"))

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_event_not_found_before_it_is_open(on: Stage) -> None:
    never_opened = compile_event(on.event.organization_id, document())

    async with unchanged(on):
        reply = await on.backend.hold_seats(
            never_opened, Holder(hold_id=uuid4(), user_id=uuid4()), seats=pairs(on, "A-1")
        )

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_hold_id_reused_for_another_wish(on: Stage) -> None:
    user = uuid4()
    hold_id = await held(on, "A-1", user=user, fingerprint="one")

    async with unchanged(on):
        reply = await on.hold("A-2", user=user, hold_id=hold_id, fingerprint="two")

    assert reply.status is Status.HOLD_ID_REUSED
    assert (reply.hold_id, reply.seats) == (None, ())


async def test_hold_id_reused_by_another_user(on: Stage) -> None:
    """Whoever guesses an id learns nothing of the hold."""
    hold_id = await held(on, "A-1", fingerprint="one")

    async with unchanged(on):
        reply = await on.hold("A-1", user=uuid4(), hold_id=hold_id, fingerprint="one")

    assert reply.status is Status.HOLD_ID_REUSED
    assert (reply.hold_id, reply.seats, reply.until_ms) == (None, (), 0)


async def test_hold_released(on: Stage) -> None:
    user = uuid4()
    hold_id = await held(on, "A-1", user=user)
    await release(on, hold_id)

    async with unchanged(on):
        assert (await on.hold("A-1", user=user, hold_id=hold_id)).status is Status.HOLD_RELEASED


@pytest.mark.parametrize("reaped", [True, False])
async def test_hold_expired(on: Stage, reaped: bool) -> None:
    user = uuid4()
    hold_id = await held(on, "A-1", user=user)
    await on.lapse(hold_id)
    if reaped:
        assert await reap(on) == 1

    async with unchanged(on):
        assert (await on.hold("A-1", user=user, hold_id=hold_id)).status is Status.HOLD_EXPIRED


async def test_repeated(on: Stage) -> None:
    user, hold_id = uuid4(), uuid4()
    first = await on.hold("A-1", "A-2", user=user, hold_id=hold_id, fingerprint="wish")

    async with unchanged(on):
        again = await on.hold("A-1", "A-2", user=user, hold_id=hold_id, fingerprint="wish")

    assert again.status is Status.REPEATED
    assert (again.hold_id, again.until_ms, again.seats) == (hold_id, first.until_ms, first.seats)
    # A repeat is durable when the first is, so it has to wait for the same entry.
    assert again.position == first.position


async def test_repeated_while_the_event_no_longer_sells(on: Stage) -> None:
    """A retry of a request that succeeded is told so, whatever happened to the event since."""
    user = uuid4()
    hold_id = await held(on, "A-1", user=user)
    await on.change(state=EventState.CLOSED)

    async with unchanged(on):
        assert (await on.hold("A-1", user=user, hold_id=hold_id)).status is Status.REPEATED


async def test_repeated_once_it_is_sold(on: Stage) -> None:
    user = uuid4()
    hold_id = await held(on, "A-1", user=user)
    await sell(on, hold_id)

    async with unchanged(on):
        again = await on.hold("A-1", user=user, hold_id=hold_id)

    assert (again.status, again.hold_id, again.seats) == (Status.REPEATED, hold_id, pairs(on, "A-1"))


async def test_stale_config(on: Stage) -> None:
    old = on.event
    await on.change(name="Another night")
    who = Holder(hold_id=uuid4(), user_id=uuid4())

    async with unchanged(on):
        assert (await on.backend.hold_seats(old, who, seats=pairs(on, "A-1"))).status is Status.STALE_CONFIG

    assert (await on.backend.hold_seats(on.event, who, seats=pairs(on, "A-1"))).status is Status.DONE


async def test_event_unavailable(on: Stage) -> None:
    await on.change(state=EventState.CANCELLED)

    async with unchanged(on):
        assert (await on.hold("A-1")).status is Status.EVENT_UNAVAILABLE


@pytest.mark.parametrize("state", [EventState.DRAFT, EventState.CLOSED, EventState.ARCHIVED])
async def test_event_not_available(on: Stage, state: EventState) -> None:
    await on.change(state=state)

    async with unchanged(on):
        assert (await on.hold("A-1")).status is Status.EVENT_NOT_AVAILABLE


@pytest.mark.parametrize("state", [EventState.PUBLISHED, EventState.LIVE])
async def test_done_in_every_state_that_sells(on: Stage, state: EventState) -> None:
    await on.change(state=state, name="Changed")

    assert (await on.hold("A-1")).status is Status.DONE


async def test_event_sales_closed_until_they_open(server_url: str) -> None:
    opens = datetime.now(UTC) + timedelta(hours=1)
    async with audited(server_url, document(sale_start=opens)) as on:
        async with unchanged(on):
            reply = await on.hold("A-1")

        assert reply.status is Status.EVENT_SALES_CLOSED
        assert reply.until_ms == on.event.opens_ms

        await on.change(sale_start=opens - timedelta(hours=2))
        assert (await on.hold("A-1")).status is Status.DONE


async def test_event_sales_closed_for_good(server_url: str) -> None:
    closes = datetime.now(UTC) - timedelta(seconds=1)
    async with audited(server_url, document(sale_end=closes)) as on:
        async with unchanged(on):
            reply = await on.hold("A-1")

        assert reply.status is Status.EVENT_SALES_CLOSED
        assert reply.until_ms == 0

        await on.change(sale_end=closes + timedelta(hours=1))
        assert (await on.hold("A-1")).status is Status.DONE


async def test_busy(server_url: str) -> None:
    async with audited(server_url, max_backlog=3) as on:
        for seat in ("A-1", "A-2"):
            assert (await on.hold(seat)).status is Status.DONE

        async with unchanged(on):
            assert (await on.hold("A-3")).status is Status.BUSY

        # The persister has caught up by one entry.
        await on.redis.set(on.keys.key("mark"), 1)
        assert (await on.hold("A-3")).status is Status.DONE
        async with unchanged(on):
            assert (await on.hold("A-4")).status is Status.BUSY


@pytest.mark.parametrize("ordinal", [SEPARATOR, 33, BEYOND_THE_MAP, 2**32 - 1])
async def test_seat_not_found_at_an_unknown_ordinal(on: Stage, ordinal: int) -> None:
    who = Holder(hold_id=uuid4(), user_id=uuid4())

    async with unchanged(on):
        reply = await on.backend.hold_seats(on.event, who, seats=[*pairs(on, "A-1"), (0, ordinal)])

    assert reply.status is Status.SEAT_NOT_FOUND
    assert reply.seats == ((0, ordinal),)


@pytest.mark.parametrize(
    "wish",
    [
        {"seats": [(7, 0)]},
        {"seats": [(1, 0)]},  # The floor has places, not seats.
        {"quantities": [(7, 2)]},
        {"quantities": [(0, 2)]},  # The orchestra has seats, not places.
        {"seats": [(0, 0)], "quantities": [(65535, 1)]},
    ],
    ids=str,
)
async def test_seat_not_found_in_an_unknown_zone(on: Stage, wish: dict[str, Any]) -> None:
    async with unchanged(on):
        reply = await on.backend.hold_seats(on.event, Holder(hold_id=uuid4(), user_id=uuid4()), **wish)

    assert reply.status is Status.SEAT_NOT_FOUND


async def test_seat_not_available_because_it_is_sold(on: Stage) -> None:
    await sell(on, await held(on, "A-1"))

    async with unchanged(on):
        reply = await on.hold("A-1", "A-2")

    assert reply.status is Status.SEAT_NOT_AVAILABLE
    assert reply.seats == pairs(on, "A-1")
    assert reply.until_ms == NEVER_MS


async def test_seat_not_available_to_the_buyer_of_it(on: Stage) -> None:
    user = uuid4()
    await sell(on, await held(on, "A-1", user=user))

    async with unchanged(on):
        assert (await on.hold("A-1", user=user)).status is Status.SEAT_NOT_AVAILABLE


async def test_seat_not_available_because_it_is_blocked(on: Stage) -> None:
    ordinal = on.event.seats["A-1"].value
    await on.redis.setrange(on.keys.key("map"), ordinal, b"b")

    async with unchanged(on):
        reply = await on.hold("A-1")

    assert (reply.status, reply.until_ms) == (Status.SEAT_NOT_AVAILABLE, 0)
    await on.redis.setrange(on.keys.key("map"), ordinal, b".")


async def test_seat_held_by_another_user(on: Stage) -> None:
    first, second = await on.hold("A-1", "A-2"), await on.hold("A-4", ttl_ms=3_600_000)
    assert second.until_ms > first.until_ms

    async with unchanged(on):
        reply = await on.hold("A-2", "A-3", "A-4")

    assert reply.status is Status.SEAT_HELD_BY_ANOTHER_USER
    assert reply.hold_id is None
    assert reply.seats == pairs(on, "A-2", "A-4")
    assert reply.until_ms == second.until_ms


async def test_what_can_never_be_had_takes_precedence(on: Stage) -> None:
    """Unknown before sold, sold before held: only of the last is there a reason to ask again."""
    await sell(on, await held(on, "A-1"))
    await held(on, "A-2")

    async with unchanged(on):
        both = await on.hold("A-2", "A-1")
        who = Holder(hold_id=uuid4(), user_id=uuid4())
        all_three = await on.backend.hold_seats(on.event, who, seats=[*pairs(on, "A-2", "A-1"), (0, SEPARATOR)])

    assert (both.status, both.seats) == (Status.SEAT_NOT_AVAILABLE, pairs(on, "A-1"))
    assert both.until_ms == NEVER_MS
    assert (all_three.status, all_three.seats) == (Status.SEAT_NOT_FOUND, ((0, SEPARATOR),))


async def test_all_or_nothing(on: Stage) -> None:
    await held(on, "B-5")
    free = [seat for seat in on.event.seats if seat != "B-5"]

    async with unchanged(on):
        assert (await on.hold(*free, "B-5")).status is Status.SEAT_HELD_BY_ANOTHER_USER

    assert (await on.hold(*free)).status is Status.DONE


async def test_already_held(on: Stage) -> None:
    user = uuid4()
    first = await on.hold("A-1", "A-2", user=user)

    async with unchanged(on):
        again = await on.hold("A-2", user=user)

    assert again.status is Status.ALREADY_HELD
    assert (again.hold_id, again.until_ms, again.seats) == (first.hold_id, first.until_ms, pairs(on, "A-1", "A-2"))
    assert again.position == first.position


async def test_own_seats_are_left_out_of_a_new_hold(on: Stage) -> None:
    user = uuid4()
    first = await held(on, "A-1", "A-3", user=user)

    reply = await on.hold("A-1", "A-2", "A-3", "A-4", user=user)

    assert reply.status is Status.DONE
    assert reply.hold_id != first
    assert reply.seats == pairs(on, "A-2", "A-4")
    assert (await counts(on, 0)).held == 4


async def test_own_seats_do_not_keep_places_from_being_held(on: Stage) -> None:
    user = uuid4()
    await held(on, "A-1", user=user)
    who = Holder(hold_id=uuid4(), user_id=user)

    reply = await on.backend.hold_seats(on.event, who, seats=pairs(on, "A-1"), quantities=[(1, 2)])

    assert (reply.status, reply.seats, reply.quantities) == (Status.DONE, (), ((1, 2),))


async def test_own_seats_are_not_counted_against_the_capacity_again(server_url: str) -> None:
    """Two of three are taken by the same user already, so one more fits."""
    async with audited(server_url, document(rows=1, per_row=10, capacity=3)) as on:
        user = uuid4()
        await held(on, "A-1", "A-2", user=user)

        reply = await on.hold("A-1", "A-2", "A-3", user=user)
        assert (reply.status, reply.seats) == (Status.DONE, pairs(on, "A-3"))

        async with unchanged(on):
            full = await on.hold("A-1", "A-4", "A-5", user=user)
        assert (full.status, full.quantities) == (Status.BLOCK_AT_CAPACITY, ((0, 2),))


async def test_own_seats_in_an_overfull_zone_do_not_keep_places_from_being_held(on: Stage) -> None:
    """The zone has less room than nothing since its capacity was lowered, but nothing new is wanted of it."""
    user = uuid4()
    await held(on, "A-1", "A-2", "A-3", user=user)
    orchestra, floor = on.event.document.zones
    await on.change(zones=(msgspec.structs.replace(orchestra, capacity=2), floor))
    who = Holder(hold_id=uuid4(), user_id=user)

    reply = await on.backend.hold_seats(on.event, who, seats=pairs(on, "A-1"), quantities=[(1, 2)])

    assert (reply.status, reply.seats, reply.quantities) == (Status.DONE, (), ((1, 2),))


async def test_own_seats_are_not_counted_against_limits_again(server_url: str) -> None:
    policy = Policy(max_holds_per_user=3, rate_limit_seats=3)
    async with audited(server_url, document(policy=policy)) as on:
        user = uuid4()
        await held(on, "A-1", "A-2", user=user)

        assert (await on.hold("A-1", "A-2", "A-3", user=user)).status is Status.DONE


async def test_own_seats_do_not_help_where_another_seat_is_taken(on: Stage) -> None:
    user = uuid4()
    await held(on, "A-1", user=user)
    await held(on, "A-2")

    async with unchanged(on):
        reply = await on.hold("A-1", "A-2", user=user)

    assert (reply.status, reply.seats) == (Status.SEAT_HELD_BY_ANOTHER_USER, pairs(on, "A-2"))


STRICT = Policy(rate_limit_seats=0, max_seats_per_booking=100, orphan_avoidance_strict=True)


async def test_leaves_orphan(server_url: str) -> None:
    """The worked example: of five free seats the second and the fourth are booked, and the others are alone."""
    async with audited(server_url, document(rows=1, per_row=5, policy=STRICT)) as on:
        async with unchanged(on):
            reply = await on.hold("A-4", "A-2")

        assert (reply.status, reply.hold_id, reply.until_ms) == (Status.LEAVES_ORPHAN, None, 0)
        assert reply.seats == pairs(on, "A-1", "A-3", "A-5")
        assert (await on.hold("A-1", "A-2")).status is Status.DONE


async def test_leaves_orphan_after_what_the_seats_themselves_are(server_url: str) -> None:
    """Taken seats come first, then orphans, then the holder's limits."""
    policy = msgspec.structs.replace(STRICT, max_holds_per_user=1)
    async with audited(server_url, document(rows=1, per_row=5, policy=policy)) as on:
        user = uuid4()
        await held(on, "A-5", user=user)
        async with unchanged(on):
            assert (await on.hold("A-2", "A-5")).status is Status.SEAT_HELD_BY_ANOTHER_USER
            assert (await on.hold("A-5", user=user)).status is Status.ALREADY_HELD
            assert (await on.hold("A-2", user=user)).status is Status.LEAVES_ORPHAN
            assert (await on.hold("A-1", user=user)).status is Status.USER_LIMIT_EXCEEDED


async def test_leaves_orphan_of_what_an_overdue_hold_gives_back(server_url: str) -> None:
    """Two seats of a hold past its time count as free, so the one that is not wanted would be left alone."""
    async with audited(server_url, document(rows=1, per_row=4, policy=STRICT)) as on:
        await held(on, "A-3", "A-4")
        await on.lapse(await held(on, "A-1", "A-2"))

        async with unchanged(on):
            reply = await on.hold("A-2")

        assert (reply.status, reply.seats) == (Status.LEAVES_ORPHAN, pairs(on, "A-1"))


async def test_own_seats_beside_the_wish_leave_nobody_alone(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=5, policy=STRICT)) as on:
        user = uuid4()
        await held(on, "A-1", "A-2", user=user)

        assert (await on.hold("A-1", "A-3", user=user)).status is Status.DONE


@pytest.mark.parametrize(("per_row", "status"), [(20, Status.LEAVES_ORPHAN), (21, Status.DONE)])
async def test_a_long_row_more_than_nine_tenths_sold_excuses(server_url: str, per_row: int, status: Status) -> None:
    """Two seats of twenty are a tenth; of twenty-one they are less."""
    async with audited(server_url, document(rows=3, per_row=per_row, policy=STRICT)) as on:
        await sell(on, await held(on, *(f"B-{number}" for number in range(3, per_row + 1))))

        assert (await on.hold("B-1")).status is status


async def test_rows_longer_than_what_is_read_at_once(server_url: str) -> None:
    async with audited(server_url, document(rows=2, per_row=1100, policy=STRICT)) as on:
        for first in range(1, 1001, 100):
            await held(on, *(f"B-{number}" for number in range(first, first + 100)))
        assert (await on.hold("B-1002")).status is Status.DONE
        async with unchanged(on):
            reply = await on.hold("A-2")
        assert (reply.status, reply.seats) == (Status.LEAVES_ORPHAN, pairs(on, "A-1"))


async def test_orphans_are_noted_in_the_log_where_they_are_allowed(server_url: str) -> None:
    policy = Policy(rate_limit_seats=0, orphan_audit_enabled=True)
    async with audited(server_url, document(rows=1, per_row=5, policy=policy)) as on:
        await held(on, "A-2", "A-4")
        await held(on, "A-1")

        assert [entry.orphans for entry in (await entries(on))[1:]] == [pairs(on, "A-1", "A-3", "A-5"), ()]


async def test_orphans_are_not_looked_for_without_a_policy(on: Stage) -> None:
    await held(on, "A-2")

    assert (await entries(on))[-1].orphans == ()


async def test_user_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_user=4, rate_limit_seats=0))) as on:
        user = uuid4()
        long, short = await on.hold("A-1", "A-2", user=user), await on.hold("A-3", user=user, ttl_ms=60_000)

        async with unchanged(on):
            reply = await on.hold("A-4", "A-5", user=user)

        assert reply.status is Status.USER_LIMIT_EXCEEDED
        assert short.until_ms < long.until_ms
        assert reply.until_ms == short.until_ms
        assert (await on.hold("A-4", user=user)).status is Status.DONE
        assert (await on.hold("A-5")).status is Status.DONE


async def test_user_limit_counts_places_and_only_what_lives(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_user=4, rate_limit_seats=0))) as on:
        user = uuid4()
        lapsed, released, sold = [await places_held(on, 1, user=user) for _ in range(3)]
        async with unchanged(on):
            assert (await take_places(on, 2, user)).status is Status.USER_LIMIT_EXCEEDED

        await on.lapse(lapsed)
        await release(on, released)
        await sell(on, sold)

        assert (await take_places(on, 4, user)).status is Status.DONE


async def test_user_limit_exceeded_by_more_than_it_can_ever_lift(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_user=1, rate_limit_seats=0))) as on:
        async with unchanged(on):
            reply = await on.hold("A-1", "A-2")

        assert (reply.status, reply.until_ms) == (Status.USER_LIMIT_EXCEEDED, 0)


async def test_user_limit_bounds_the_work_of_a_call(server_url: str) -> None:
    """Each earlier hold is looked at, so there may be 128 of them and no more, also where the policy has no limit."""
    async with audited(server_url, document(floor=500)) as on:
        user = uuid4()
        for _ in range(128):
            await places_held(on, 1, user=user)

        async with unchanged(on):
            assert (await take_places(on, 1, user)).status is Status.USER_LIMIT_EXCEEDED
        assert (await take_places(on, 1)).status is Status.DONE


async def test_address_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_ip=3, rate_limit_seats=0))) as on:
        first = await on.hold("A-1", "A-2", address="home")

        async with unchanged(on):
            reply = await on.hold("A-3", "A-4", address="home")

        assert (reply.status, reply.until_ms) == (Status.ADDRESS_LIMIT_EXCEEDED, first.until_ms)
        assert (await on.hold("A-3", address="home")).status is Status.DONE
        assert (await on.hold("A-4", "A-5", address="work")).status is Status.DONE
        # A caller without an address, such as a box office, has no such limit.
        assert (await on.hold("B-1", "B-2", "B-3", "B-4")).status is Status.DONE

        assert first.hold_id is not None
        await release(on, first.hold_id)
        assert (await on.hold("A-1", "A-2", address="home")).status is Status.DONE


async def test_addresses_are_not_followed_without_a_limit(on: Stage) -> None:
    await held(on, "A-1", address="home")

    assert await on.redis.hget(on.keys.key("holds"), b"ahome") is None


async def test_rate_limit_exceeded(server_url: str) -> None:
    """Counted in seats within a sliding window, and the answer says when enough of them leave it."""
    policy = Policy(rate_limit_seats=4, rate_limit_seconds=300)
    async with audited(server_url, document(policy=policy)) as on:
        user = uuid4()
        first, second = await held(on, "A-1", "A-2", user=user), await held(on, "A-3", user=user)
        first_ms, second_ms = await backdate(on, first, 200_000), await backdate(on, second, 100_000)

        async with unchanged(on):
            one_too_many = await on.hold("B-1", "B-2", user=user)
            three_too_many = await on.hold("B-1", "B-2", "B-3", "B-4", user=user)
            never = await on.hold("B-1", "B-2", "B-3", "B-4", "B-5", user=user)

        assert (one_too_many.status, one_too_many.until_ms) == (Status.RATE_LIMIT_EXCEEDED, first_ms + 300_000)
        assert (three_too_many.status, three_too_many.until_ms) == (Status.RATE_LIMIT_EXCEEDED, second_ms + 300_000)
        assert (never.status, never.until_ms) == (Status.RATE_LIMIT_EXCEEDED, 0)

        # A hundred seconds later the first has left the window, though it still lives.
        await backdate(on, first, 100_000)
        assert (await on.hold("B-1", "B-2", user=user)).status is Status.DONE
        assert (await on.hold("B-1", "B-2", "B-3", "B-4")).status is Status.SEAT_HELD_BY_ANOTHER_USER


@pytest.mark.parametrize("end", [release, sell])
async def test_what_has_ended_still_counts_in_the_window(server_url: str, end: Any) -> None:
    """Else a script of a scalper's could walk through the house, hold by hold."""
    async with audited(server_url, document(policy=Policy(rate_limit_seats=2))) as on:
        user = uuid4()
        await end(on, await held(on, "A-1", "A-2", user=user))

        async with unchanged(on):
            assert (await on.hold("A-3", user=user)).status is Status.RATE_LIMIT_EXCEEDED


async def test_a_holders_list_drops_what_no_longer_matters(server_url: str) -> None:
    async with audited(server_url, document(policy=Policy(max_holds_per_ip=50))) as on:
        user = uuid4()
        old = await held(on, "A-1", user=user, address="home")
        await release(on, old)
        await backdate(on, old, 300_001)

        new = await held(on, "A-2", user=user, address="home")

        assert await on.redis.hget(on.keys.key("holds"), b"u" + user.bytes) == new.bytes
        assert await on.redis.hget(on.keys.key("holds"), b"ahome") == new.bytes


async def test_block_at_capacity_below_the_number_of_seats(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=10, capacity=4)) as on:
        await held(on, "A-1", "A-2", "A-3")

        async with unchanged(on):
            reply = await on.hold("A-4", "A-5", "A-6")

        assert reply.status is Status.BLOCK_AT_CAPACITY
        assert reply.quantities == ((0, 2),)
        assert (await on.hold("A-4")).status is Status.DONE


async def test_block_at_capacity_counts_sold_seats(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=10, capacity=2)) as on:
        await sell(on, await held(on, "A-1", "A-2"))

        async with unchanged(on):
            assert (await on.hold("A-3")).status is Status.BLOCK_AT_CAPACITY


async def test_block_at_capacity_on_the_floor_with_blocked_places(server_url: str) -> None:
    async with audited(server_url, document(floor=10)) as on:
        await on.backend.block_seats(on.event, quantities=[(1, 3)])
        await places_held(on, 5)

        async with unchanged(on):
            reply = await take_places(on, 4)

        assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((1, 2),))
        assert (await take_places(on, 2)).status is Status.DONE


async def test_blocked_seats_do_not_use_up_the_capacity_below_the_number_of_seats(server_url: str) -> None:
    """They are out of reach by their own byte; counting them again would sell fewer seats than the capacity."""
    async with audited(server_url, document(rows=1, per_row=10, capacity=4)) as on:
        await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2"))

        assert (await on.hold("A-3", "A-4", "A-5", "A-6")).status is Status.DONE


async def test_every_zone_that_lacks_room_is_named(server_url: str) -> None:
    zones = (
        ZoneDocument("orchestra", ZoneType.VIP_RESERVED, "Orchestra", 1, seats(1, 3)),
        ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 2),
        ZoneDocument("stalls", ZoneType.GA_SEATED, "Stalls", 5),
        ZoneDocument("lounge", ZoneType.VIP_STANDING, "Lounge", 1),
    )
    async with audited(server_url, msgspec.structs.replace(document(), zones=zones)) as on:
        who = Holder(hold_id=uuid4(), user_id=uuid4())
        wish = {"seats": pairs(on, "A-1", "A-2"), "quantities": [(1, 5), (2, 5), (3, 2)]}

        async with unchanged(on):
            reply = await on.backend.hold_seats(on.event, who, **wish)

        assert reply.status is Status.BLOCK_AT_CAPACITY
        assert set(reply.quantities) == {(0, 1), (1, 3), (3, 1)}


async def test_an_overdue_hold_in_the_way_is_expired_in_the_same_call(on: Stage) -> None:
    overdue = await held(on, "A-1", "A-2")
    await on.lapse(overdue)

    reply = await on.hold("A-2", "A-3")

    assert reply.status is Status.DONE
    assert await operations(on) == ["open", "hold", "expire", "hold"]
    expire = (await entries(on))[2]
    blocks, reason = unpack_blocks(expire.body, 1)
    assert (expire.hold_ids, blocks[0].seats, reason) == ((overdue,), pairs(on, "A-1", "A-2"), b"ttl_expired")
    assert await kept_for_ms(on, overdue, reply.now_ms) == RETENTION_MS
    # All of the overdue hold is over, not only the seat that was wanted.
    assert await seat_byte(on, "A-1") == b"."
    stored = await record(on, overdue)
    assert stored is not None
    assert stored.state == "x"
    assert (await counts(on, 0)).held == 2


async def test_several_overdue_holds_in_the_way_are_one_log_entry(on: Stage) -> None:
    overdue = [await held(on, seat) for seat in ("A-1", "A-2", "A-3")]
    await on.lapse(*overdue)

    assert (await on.hold("A-1", "A-2", "A-3")).status is Status.DONE
    assert (await entries(on))[-2].hold_ids == tuple(overdue)


async def test_an_overdue_hold_of_the_same_user_is_held_anew(on: Stage) -> None:
    user = uuid4()
    overdue = await held(on, "A-1", user=user)
    await on.lapse(overdue)

    reply = await on.hold("A-1", user=user)

    assert reply.status is Status.DONE
    assert reply.hold_id != overdue


async def test_a_refusal_leaves_overdue_holds_alone(on: Stage) -> None:
    await on.lapse(await held(on, "A-1"))
    await held(on, "A-2")

    async with unchanged(on):
        assert (await on.hold("A-1", "A-2")).status is Status.SEAT_HELD_BY_ANOTHER_USER


async def test_overdue_holds_make_room_on_the_floor(server_url: str) -> None:
    async with audited(server_url, document(floor=10)) as on:
        overdue = await places_held(on, 6)
        await on.lapse(overdue)

        async with unchanged(on):
            assert (await take_places(on, 11)).status is Status.BLOCK_AT_CAPACITY

        assert (await take_places(on, 10)).status is Status.DONE
        assert await operations(on) == ["open", "hold", "expire", "hold"]
        assert (await counts(on, 1)).held == 10


async def test_overdue_holds_make_room_below_the_number_of_seats(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=10, capacity=2)) as on:
        await on.lapse(await held(on, "A-1", "A-2"))

        assert (await on.hold("A-2", "A-3")).status is Status.DONE
        assert (await counts(on, 0)).held == 2


async def test_only_as_many_overdue_holds_are_looked_at_as_a_call_may_take(server_url: str) -> None:
    """65 overdue holds of one place each: the call frees 64, which is not enough for 65."""
    async with audited(server_url, document(floor=65)) as on:
        overdue = [await places_held(on, 1) for _ in range(65)]
        await on.lapse(*overdue)

        async with unchanged(on):
            reply = await take_places(on, 65)
        assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((1, 1),))

        assert (await take_places(on, 64)).status is Status.DONE
        assert (await counts(on, 1)).held == 65


async def test_a_hold_id_can_be_used_again_once_it_is_forgotten(server_url: str) -> None:
    """The time on record bounds how long a repeat is recognised."""
    async with audited(server_url) as on:
        user = uuid4()
        hold_id = await held(on, "A-1", user=user)
        await release(on, hold_id)
        await on.age_ended()
        await reap(on)

        assert (await on.hold("A-1", user=user, hold_id=hold_id)).status is Status.DONE


async def test_exactly_a_hundred_units(server_url: str) -> None:
    async with audited(server_url, document(rows=1, per_row=100)) as on:
        assert (await on.hold(*on.event.seats)).status is Status.DONE


async def test_arguments_at_their_bounds(on: Stage) -> None:
    longest = {
        "fingerprint": b"f" * 16,
        "address": b"a" * 14,
        "cart": b"c" * 255,
        "meta": b"m" * 4096,
    }

    reply = await call(on, "hold_seats", **longest)

    assert reply["status"] is Status.DONE
    stored = unpack_record((await entries(on))[-1].body)
    assert (stored.fingerprint, stored.address, stored.cart) == ("f" * 16, "a" * 14, "c" * 255)


async def test_what_cannot_be_put_into_a_call_is_refused_like_any_bad_wish(on: Stage) -> None:
    holder = Holder(hold_id=uuid4(), user_id=uuid4())

    async with unchanged(on):
        negative = await on.backend.hold_seats(on.event, holder, quantities=[(1, -1)])
        nowhere = await on.backend.allocate_seats(on.event, holder, zones=[99], count=1)

    assert (negative.status, nowhere.status) == (Status.INVALID_REQUEST, Status.SEAT_NOT_FOUND)


async def test_wheelchair_limit_exceeded(server_url: str) -> None:
    async with audited(server_url, accessible_document()) as on:
        user = uuid4()
        await held(on, "A-1", user=user)

        async with unchanged(on):
            reply = await on.hold("B-1", user=user)

    assert (reply.status, reply.seats) == (Status.WHEELCHAIR_LIMIT_EXCEEDED, pairs(on, "B-1"))
