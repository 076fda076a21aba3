"""An event with sales moves to another version of its layout, or is told why it cannot."""

import asyncio
import subprocess
from collections.abc import Sequence
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.backend import Holder
from holdfast.engine.epochs import Mode
from holdfast.engine.layout import CompiledEvent, SeatDocument, ZoneDocument, ZoneType
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.persistence.catalogue import CatalogueError
from holdfast.persistence.layout_moves import LayoutMove
from holdfast.persistence.modes import set_mode
from support.commands import complete
from support.fallback import Fallback, Front
from support.moving import CAUSE, move, now, plan, save_version


def rebuilt(shards: Fallback, *, without: Sequence[str] = (), capacity: int | None = None) -> list[ZoneDocument]:
    """The floor first, a balcony that is new, and the orchestra's rows the other way round, with seats more or less."""
    orchestra, floor = shards.event.document.zones
    kept = [seat for seat in orchestra.seats if seat.seat_id not in without]
    kept = [*sorted(kept, key=lambda seat: seat.row, reverse=True), SeatDocument("X-1", "X", 1)]
    balcony = ZoneDocument("balcony", ZoneType.RESERVED_SEATING, "Balcony", 1, (SeatDocument("Y-1", "Y", 1),))
    whole = msgspec.structs.replace(orchestra, seats=tuple(kept), capacity=capacity or len(kept))
    return [floor, balcony, whole]


async def places(front: Front, event: CompiledEvent, quantity: int) -> UUID:
    holder = Holder(hold_id=uuid4(), user_id=uuid4())
    pair = Pair(event.zone_index["floor"], quantity)
    reply = await front.service.hold_seats(event, holder, quantities=[pair])
    assert reply.status is Status.DONE
    return holder.hold_id


async def sold(front: Front, event: CompiledEvent, *seats: str) -> UUID:
    hold_id = uuid4()
    assert (await front.hold(event, *seats, hold_id=hold_id)).status is Status.DONE
    reply = await front.service.confirm_holds(event, [hold_id], sale="sale-1", user_id=None)
    assert reply.status is Status.DONE
    return hold_id


async def statuses(shards: Fallback) -> dict[str, str]:
    async with shards.servers.pool.acquire() as connection:
        rows = await connection.fetch("SELECT seat_id, status FROM seats WHERE event_id = $1", shards.event.event_id)
    return {row["seat_id"]: row["status"] for row in rows}


async def test_what_is_held_and_sold_moves_along_and_service_returns_to_redis(shards: Fallback) -> None:
    await plan(shards)
    user, held_id = uuid4(), uuid4()
    async with shards.keeping(), shards.front() as front:
        await sold(front, shards.event, "A-1", "B-2")
        assert (await front.hold(shards.event, "C-3", hold_id=held_id, user=user)).status is Status.DONE
        await places(front, shards.event, 5)
        assert await save_version(shards, rebuilt(shards, without=("B-10",))) == 2

        done = await move(shards)

        assert done.objections == ()
        assert (done.moved, done.from_version, done.to_version) == (True, 1, 2)
        assert (done.seats_kept, done.seats_added, done.seats_removed) == (29, 2, 1)
        event = await now(shards)
        assert event.version == done.config_version != shards.event.version
        await front.sees(event, Mode.REDIS)
        taken = {seat: status for seat, status in (await statuses(shards)).items() if status != "available"}
        assert taken == {"A-1": "sold", "B-2": "sold", "C-3": "held"}
        # Redis has them at their new places, and whoever knows the old ones is told so.
        reading = await front.service.read_event(event.organization_id, event.event_id, want_map=True)
        letters = {seat: chr(reading.map[event.seats[seat].value]) for seat in ("A-1", "B-2", "C-3", "X-1", "Y-1")}
        assert letters == {"A-1": "s", "B-2": "s", "C-3": "h", "X-1": ".", "Y-1": "."}
        assert (await front.hold(shards.event, "A-2")).status is Status.STALE_CONFIG
        for seat in ("A-1", "C-3"):
            assert not (await front.hold(event, seat)).status.succeeded
        for seat in ("X-1", "Y-1", "A-2"):
            assert (await front.hold(event, seat)).status is Status.DONE
        released = await front.service.release_holds(event, [held_id], user_id=user, reason="user_cancelled")
        assert released.status is Status.DONE
        assert (await front.hold(event, "C-3")).status is Status.DONE
    await shards.drain()
    assert await shards.findings() == ()
    assert await shards.value("SELECT count(*) FROM audit_log WHERE action = 'event_layout_moved'") == 1
    zone = "SELECT sold FROM zones WHERE event_id = $1 AND zone_id = 'orchestra'"
    assert await shards.value(zone, event.event_id) == 2


async def test_a_dry_run_changes_nothing(shards: Fallback) -> None:
    await plan(shards)
    state = await shards.state()
    await save_version(shards, rebuilt(shards))

    would = await move(shards, dry_run=True)

    assert (would.moved, would.objections, would.seats_added) == (False, (), 2)
    assert (await shards.state(), (await now(shards)).version) == (state, shards.event.version)


async def test_a_renamed_seat_keeps_its_ticket(shards: Fallback) -> None:
    await plan(shards)
    orchestra, floor = shards.event.document.zones
    names = {"A-1": "A-2", "A-2": "A-1", "A-3": "VIP-1"}
    seats = tuple(
        msgspec.structs.replace(seat, seat_id=names.get(seat.seat_id, seat.seat_id)) for seat in orchestra.seats
    )
    async with shards.keeping(), shards.front() as front:
        await sold(front, shards.event, "A-3")
        await sold(front, shards.event, "A-2")
        await save_version(shards, [msgspec.structs.replace(orchestra, seats=seats), floor])

        assert (await move(shards, A_1="A-2", A_2="A-1", A_3="VIP-1")).moved

    taken = {seat: status for seat, status in (await statuses(shards)).items() if status != "available"}
    assert taken == {"VIP-1": "sold", "A-1": "sold"}
    assert await shards.findings() == ()


@pytest.mark.parametrize(
    ("without", "capacity", "renamed", "objection"),
    [
        (("A-1",), None, {}, "The seat 'A-1' is or was taken, and the new version does not have it."),
        (("C-3",), None, {}, "The seat 'C-3' is or was taken, and the new version does not have it."),
        ((), 1, {}, "The zone 'orchestra' takes 1, and 2 are taken."),
        ((), None, {"A_1": "A-2"}, "Two seats would become one."),
        ((), None, {"Q_1": "A-2"}, "There is no seat 'Q-1' to be renamed."),
        ((), None, {"A_1": "Q-2"}, "The new version has no seat 'Q-2'."),
    ],
)
async def test_a_move_that_would_lose_something_is_refused_with_the_reason(
    shards: Fallback, without: Sequence[str], capacity: int | None, renamed: dict[str, str], objection: str
) -> None:
    await plan(shards)
    async with shards.keeping(), shards.front() as front:
        await sold(front, shards.event, "A-1", "B-2")
        given_up = uuid4()
        assert (await front.hold(shards.event, "C-3", hold_id=given_up)).status is Status.DONE
        await front.service.release_holds(shards.event, [given_up], user_id=None, reason="admin_override")
        await save_version(shards, rebuilt(shards, without=without, capacity=capacity))

        refused = await move(shards, **renamed)

    assert not refused.moved
    assert objection in refused.objections
    assert (await now(shards)).version == shards.event.version
    assert (await shards.state()).mode is Mode.REDIS


async def test_places_that_were_taken_need_a_zone_with_places(shards: Fallback) -> None:
    await plan(shards)
    async with shards.keeping(), shards.front() as front:
        await places(front, shards.event, 3)
        await save_version(shards, rebuilt(shards)[1:])

        refused = await move(shards)

    assert refused.objections == ("Places of the zone 'floor' are or were taken, and the new version has none there.",)


async def test_the_blocks_of_the_plan_move_along(shards: Fallback) -> None:
    await plan(shards, blocked_seat_ids=frozenset({"A-1"}))
    await save_version(shards, rebuilt(shards))

    async with shards.keeping(), shards.front() as front:
        await sold(front, shards.event, "A-1")
        assert (await move(shards)).objections == ("The seat 'A-1' is sold, and the plan blocks it.",)

    assert (await statuses(shards))["A-1"] == "sold"


async def test_an_event_served_by_postgres_moves_and_stays_there(shards: Fallback) -> None:
    await plan(shards)
    await set_mode(shards.servers, Mode.DB, msgspec.structs.replace(CAUSE, pinned=True), [shards.shard])
    await save_version(shards, rebuilt(shards))

    assert (await move(shards)).moved

    assert (await shards.state()).mode is Mode.DB
    async with shards.front() as front:
        assert (await front.hold(shards.event, "A-2")).status is Status.STALE_CONFIG
        assert (await front.hold(await now(shards), "X-1")).status is Status.DONE


async def test_the_command_moves_or_says_why_not(shards: Fallback) -> None:
    await plan(shards)
    await save_version(shards, rebuilt(shards))
    servers = {"HOLDFAST_REDIS_URL": shards.redis_url, "HOLDFAST_POSTGRES_DSN": shards.dsn}

    async def command(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = ("move", str(shards.event.event_id), "--version", "2", "--reason", "row F was rebuilt", *more)
        return await asyncio.to_thread(complete, "event", *arguments, **servers)

    refused = await command("--rename", "A-1=A-2")
    would = await command("--dry-run")
    done = await command("--json")
    again = await command("--version", "9")
    wrong = await command("--rename", "A-1")

    assert (refused.returncode, "Two seats would become one." in refused.stdout) == (1, True)
    assert (would.returncode, would.stdout.startswith("Would move")) == (0, True)
    assert msgspec.json.decode(done.stdout, type=LayoutMove).moved
    assert (await now(shards)).version != shards.event.version
    assert (again.returncode, "there is no version 9" in again.stderr) == (1, True)
    assert (wrong.returncode, "A-1 is not OLD=NEW" in wrong.stderr) == (2, True)


async def test_only_an_event_of_a_layout_moves_and_only_to_a_version_that_exists(shards: Fallback) -> None:
    with pytest.raises(CatalogueError, match="not made from a stored layout"):
        await move(shards)
    await plan(shards)
    with pytest.raises(CatalogueError, match="there is no version 7"):
        await move(shards, 7)
