"""Companion seats stay kept, or let go, for the same people whatever serves the event, and wherever it moves."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.epochs import Mode
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory
from holdfast.engine.status import Status
from holdfast.persistence.modes import set_mode
from holdfast.persistence.transitions import Cause
from support.engine import UNLIMITED, accessible, document
from support.fallback import Fallback, Front, Valkey, fallback
from support.moving import move, now, plan, save_version

CAUSE = Cause("a test", "a test")

# The companion seats of the pairs, and what becomes of them: `c` is kept.
LETTERS = {"A-2": "c", "B-2": "c", "B-3": "c", "C-2": "a", "D-2": "a", "E-2": "a"}


def paired_document() -> EventDocument:
    """Rows of ten with a wheelchair seat each and its companion seats, and a seat at an aisle."""
    plain = document(rows=6, policy=msgspec.structs.replace(UNLIMITED, max_wheelchair_seats_per_booking=1))
    places = accessible(plain.zones[0].seats, "B-1", "B-2", "B-3")
    for row in "ACDEF":
        places = accessible(places, f"{row}-1", f"{row}-2")
    places = tuple(
        msgspec.structs.replace(seat, category=SeatCategory.AISLE) if seat.seat_id == "F-10" else seat
        for seat in places
    )
    return msgspec.structs.replace(plain, zones=(msgspec.structs.replace(plain.zones[0], seats=places), plain.zones[1]))


@pytest.fixture
async def shards(valkey: Valkey, database_dsn: str) -> AsyncIterator[Fallback]:
    async with fallback(valkey.url, database_dsn, paired_document()) as under_test:
        yield under_test


class Buyers(msgspec.Struct, frozen=True):
    """Who has the wheelchair seats: of A held, of B sold, of C held and of D sold by people who declined."""

    a: UUID
    b: UUID
    c: UUID
    d: UUID


async def take(front: Front, event: CompiledEvent, user: UUID, seat: str, *, sold: bool, declined: bool) -> None:
    hold_id = uuid4()
    assert (await front.hold(event, seat, user=user, hold_id=hold_id)).status is Status.DONE
    if declined:
        reply = await front.service.decline_companions(event, hold_id, user_id=user)
        assert reply.status is Status.DONE
    if sold:
        bought = await front.service.confirm_holds(event, [hold_id], sale=f"sale {seat}", user_id=user)
        assert bought.status is Status.DONE


async def taken(front: Front, event: CompiledEvent) -> Buyers:
    """People take wheelchair seats; one gives theirs back."""
    buyers = Buyers(uuid4(), uuid4(), uuid4(), uuid4())
    await take(front, event, buyers.a, "A-1", sold=False, declined=False)
    await take(front, event, buyers.b, "B-1", sold=True, declined=False)
    await take(front, event, buyers.c, "C-1", sold=False, declined=True)
    await take(front, event, buyers.d, "D-1", sold=True, declined=True)
    given_up, user = uuid4(), uuid4()
    assert (await front.hold(event, "E-1", user=user, hold_id=given_up)).status is Status.DONE
    await front.service.release_holds(event, [given_up], user_id=user, reason="user_cancelled")
    return buyers


async def letters(front: Front, event: CompiledEvent) -> dict[str, str]:
    reading = await front.service.read_event(event.organization_id, event.event_id, want_map=True)
    return {seat: chr(reading.map[event.seats[seat].value]) for seat in LETTERS}


async def is_kept_as_before(front: Front, event: CompiledEvent, buyers: Buyers) -> None:
    """The kept seats are those of before, for nobody but their buyers; the others are for everybody."""
    assert await letters(front, event) == LETTERS
    for seat in ("A-2", "B-2", "B-3"):
        assert (await front.hold(event, seat)).status is Status.SEAT_NOT_AVAILABLE
    for seat, user in (("A-2", buyers.a), ("B-2", buyers.b)):
        assert (await front.hold(event, seat, user=user)).status is Status.DONE
    for seat in ("C-2", "D-2", "E-2"):
        assert (await front.hold(event, seat)).status is Status.DONE
    # An accessible choice finds what is left of them.
    found = await choose(front, event, accessible=True)
    assert found.seats == tuple(event.seats[seat] for seat in ("F-1", "F-2"))


async def choose(front: Front, event: CompiledEvent, **wish: object) -> HoldReply:
    holder = Holder(hold_id=uuid4(), user_id=uuid4())
    count = 2 if wish.get("accessible") else 1
    zone = event.zone_index["orchestra"]
    return await front.service.allocate_seats(event, holder, zones=[zone], count=count, **wish)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["rebuilt", "killed"])
async def test_kept_companions_survive_a_redis_that_is_built_anew(shards: Fallback, valkey: Valkey, how: str) -> None:
    event = shards.event
    async with shards.front() as front, shards.keeping():
        before = await front.sees(event, Mode.REDIS)
        buyers = await taken(front, event)
        assert await letters(front, event) == LETTERS

        if how == "killed":
            valkey.kill()
            valkey.start(empty=True)
        else:
            await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard], anew=True)
        await front.sees(event, Mode.REDIS, before.epoch)

        await is_kept_as_before(front, event, buyers)
        aisle = await choose(front, event, categories={SeatCategory.AISLE})
        assert aisle.seats == (event.seats["F-10"],)
    assert await shards.findings() == ()


async def test_postgres_keeps_companions_while_it_serves(shards: Fallback) -> None:
    event = shards.event
    async with shards.front() as front, shards.keeping():
        await front.sees(event, Mode.REDIS)
        buyers = await taken(front, event)

        await set_mode(shards.servers, Mode.DB, CAUSE, [shards.shard])
        await front.sees(event, Mode.DB)

        await is_kept_as_before(front, event, buyers)
    assert await shards.findings() == ()


async def test_what_is_kept_and_declined_in_postgres_is_so_in_redis_afterwards(shards: Fallback) -> None:
    event = shards.event
    async with shards.front() as front, shards.keeping():
        await set_mode(shards.servers, Mode.DB, CAUSE, [shards.shard])
        after = await front.sees(event, Mode.DB)
        buyers = await taken(front, event)
        assert await letters(front, event) == LETTERS

        await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard])
        await front.sees(event, Mode.REDIS, after.epoch)

        await is_kept_as_before(front, event, buyers)
    assert await shards.findings() == ()


async def test_a_wheelchair_seat_given_back_in_either_mode_lets_its_companions_go(shards: Fallback) -> None:
    event, user, first, second = shards.event, uuid4(), uuid4(), uuid4()
    async with shards.front() as front, shards.keeping():
        await front.sees(event, Mode.REDIS)
        assert (await front.hold(event, "A-1", user=user, hold_id=first)).status is Status.DONE
        await set_mode(shards.servers, Mode.DB, CAUSE, [shards.shard])
        there = await front.sees(event, Mode.DB)
        await front.service.release_holds(event, [first], user_id=user, reason="user_cancelled")
        assert (await letters(front, event))["A-2"] == "a"

        assert (await front.hold(event, "B-1", user=user, hold_id=second)).status is Status.DONE
        await set_mode(shards.servers, Mode.REDIS, CAUSE, [shards.shard])
        await front.sees(event, Mode.REDIS, there.epoch)
        assert (await letters(front, event))["B-3"] == "c"
        await front.service.release_holds(event, [second], user_id=user, reason="user_cancelled")

        assert (await letters(front, event))["B-3"] == "a"
        assert (await front.hold(event, "B-3")).status is Status.DONE
    assert await shards.findings() == ()


async def test_kept_companions_move_with_their_event(shards: Fallback) -> None:
    """Rows the other way round, and the floor first: every seat has another place, and belongs to the same ones."""
    await plan(shards)
    orchestra, floor = shards.event.document.zones
    turned = msgspec.structs.replace(orchestra, seats=tuple(sorted(orchestra.seats, key=lambda seat: -ord(seat.row))))
    async with shards.keeping(), shards.front() as front:
        before = await front.sees(shards.event, Mode.REDIS)
        buyers = await taken(front, shards.event)
        assert await save_version(shards, [floor, turned]) == 2

        assert (await move(shards)).objections == ()

        event = await now(shards)
        await front.sees(event, Mode.REDIS, before.epoch)
        assert event.seats["A-2"] != shards.event.seats["A-2"]
        await is_kept_as_before(front, event, buyers)
    assert await shards.findings() == ()


async def test_a_new_version_of_the_layout_says_which_companions_belong_to_a_seat(shards: Fallback) -> None:
    """Given a buyer of B-1, when the new version gives it B-3 alone, B-2 is for everybody and B-3 still kept."""
    await plan(shards)
    orchestra, floor = shards.event.document.zones
    changed = tuple(
        msgspec.structs.replace(seat, companion_seat_ids=("B-3",))
        if seat.seat_id == "B-1"
        else msgspec.structs.replace(seat, category=SeatCategory.STANDARD)
        if seat.seat_id == "B-2"
        else seat
        for seat in orchestra.seats
    )
    async with shards.keeping(), shards.front() as front:
        before = await front.sees(shards.event, Mode.REDIS)
        buyers = await taken(front, shards.event)
        assert await save_version(shards, [msgspec.structs.replace(orchestra, seats=changed), floor]) == 2

        assert (await move(shards)).objections == ()

        event = await now(shards)
        await front.sees(event, Mode.REDIS, before.epoch)
        assert await letters(front, event) == LETTERS | {"B-2": "."}
        assert (await front.hold(event, "B-2")).status is Status.DONE
        assert (await front.hold(event, "B-3")).status is Status.SEAT_NOT_AVAILABLE
        assert (await front.hold(event, "B-3", user=buyers.b)).status is Status.DONE
    assert await shards.findings() == ()
