"""Seats out of sale and back, events into service and out, and reading them, on both backends."""

from uuid import uuid4

import msgspec
from conformance.halls import Hall, change, held, hold, letters, reading, seats, shard, unchanged

from holdfast.engine.layout import EventState, compile_event
from holdfast.engine.records import Pair, ZoneCounts
from holdfast.engine.status import Status
from support.engine import document, ordinals


async def test_blocked_seats_and_places_are_out_of_sale_until_unblocked(hall: Hall) -> None:
    wish = {"seats": seats(hall, "A-1", "A-2"), "quantities": [(1, 5)]}
    blocked = await hall.backend.block_seats(hall.event, **wish)
    assert (blocked.status, list(blocked.seats), list(blocked.quantities)) == (
        Status.DONE,
        seats(hall, "A-1", "A-2"),
        [Pair(1, 5)],
    )
    assert await letters(hall, "A-1", "A-2", "A-3") == "bb."
    assert [zone.blocked for zone in (await reading(hall)).zones] == [2, 5]
    assert (await hold(hall, "A-1")).status is Status.SEAT_NOT_AVAILABLE
    assert (await hold(hall, places=46)).status is Status.BLOCK_AT_CAPACITY

    async with unchanged(hall):
        again = await hall.backend.block_seats(hall.event, seats=seats(hall, "A-1"))
    assert (again.status, again.seats) == (Status.REPEATED, ())

    # Unblocking gives back no more than is blocked.
    returned = await hall.backend.unblock_seats(hall.event, seats=seats(hall, "A-2", "A-3"), quantities=[(1, 9)])
    assert (returned.status, list(returned.seats), list(returned.quantities)) == (
        Status.DONE,
        seats(hall, "A-2"),
        [Pair(1, 5)],
    )
    async with unchanged(hall):
        none = await hall.backend.unblock_seats(hall.event, seats=seats(hall, "A-2"), quantities=[(1, 1)])
    assert none.status is Status.REPEATED


async def test_blocking_is_all_or_nothing(hall: Hall) -> None:
    await held(hall, "A-1", places=45)
    sold = await held(hall, "A-2")
    await hall.backend.confirm_holds(hall.event, [sold], sale="sale-1", user_id=None)
    (last,) = seats(hall, "A-10")
    free, taken, gone, nowhere = *seats(hall, "A-5", "A-1", "A-2"), Pair(0, last.value + 1)

    async def refusal(*wish: Pair, places: int = 0) -> tuple[Status, list[Pair], list[Pair]]:
        quantities = [(1, places)] if places else []
        reply = await hall.backend.block_seats(hall.event, seats=wish, quantities=quantities)
        return reply.status, list(reply.seats), list(reply.quantities)

    async with unchanged(hall):
        assert await refusal(free, taken) == (Status.SEAT_HELD_BY_ANOTHER_USER, [taken], [])
        assert await refusal(free, taken, gone) == (Status.SEAT_NOT_AVAILABLE, [gone], [])
        assert await refusal(taken, nowhere, gone) == (Status.SEAT_NOT_FOUND, [nowhere], [])
        assert await refusal(free, places=6) == (Status.BLOCK_AT_CAPACITY, [], [Pair(1, 6)])
        assert await refusal(free, free) == (Status.INVALID_REQUEST, [], [])
        assert await refusal() == (Status.INVALID_REQUEST, [], [])
        unknown = await hall.backend.unblock_seats(hall.event, seats=[nowhere], quantities=[(0, 1)])
        assert (unknown.status, list(unknown.seats), list(unknown.quantities)) == (
            Status.SEAT_NOT_FOUND,
            [nowhere],
            [Pair(0, 1)],
        )


async def test_a_hold_past_its_time_does_not_keep_a_seat_from_being_blocked(hall: Hall) -> None:
    old = await held(hall, "A-1", "A-2")
    await hall.lapse(old)

    blocked = await hall.backend.block_seats(hall.event, seats=seats(hall, "A-1"))

    assert blocked.status is Status.DONE
    assert await letters(hall, "A-1", "A-2") == "b."


async def test_changes_are_made_against_the_version_in_service(hall: Hall) -> None:
    old = hall.event
    await change(hall, name="Another night")

    async with unchanged(hall):
        for name in ("block_seats", "unblock_seats"):
            reply = await getattr(hall.backend, name)(old, seats=seats(hall, "A-1"))
            assert reply.status is Status.STALE_CONFIG
        changed = msgspec.structs.replace(old.document, name="A third night")
        reply, event = await hall.backend.set_event_state(old, changed)
        assert (reply.status, event.version) == (Status.STALE_CONFIG, old.version)
        # The same change again is no other change.
        reply, event = await hall.backend.set_event_state(old, hall.event.document)
        assert (reply.status, event.version) == (Status.REPEATED, hall.event.version)


async def test_state_and_capacities_change_at_once(hall: Hall) -> None:
    await held(hall, places=20)
    zones = hall.event.document.zones

    await change(hall, zones=(zones[0], msgspec.structs.replace(zones[1], capacity=21)))
    assert (await hold(hall, places=2)).status is Status.BLOCK_AT_CAPACITY
    assert (await hold(hall, places=1)).status is Status.DONE
    await change(hall, state=EventState.CLOSED)
    assert (await hold(hall, "A-1")).status is Status.EVENT_NOT_AVAILABLE

    found = await reading(hall)
    assert (found.version, found.state) == (hall.event.version, "closed")
    assert found.zones == (ZoneCounts(0, 30, 30, 0, 0, 0), ZoneCounts(1, 21, 0, 21, 0, 0))


async def test_an_event_opens_once_and_closes_when_nobody_needs_it(hall: Hall) -> None:
    async with unchanged(hall):
        assert (await hall.backend.open_event(hall.event)).status is Status.REPEATED
        other = compile_event(
            hall.event.organization_id, msgspec.structs.replace(hall.event.document, name="Another night")
        )
        assert (await hall.backend.open_event(other)).status is Status.EVENT_EXISTS
        assert (await hall.backend.close_event(hall.event)).status is Status.EVENT_IN_USE

    hold_id = await held(hall, "A-1")
    await change(hall, state=EventState.CLOSED)
    assert (await hall.backend.close_event(hall.event)).status is Status.EVENT_IN_USE
    await hall.backend.release_holds(hall.event, [hold_id], user_id=None, reason="admin_override")

    assert (await hall.backend.close_event(hall.event)).status is Status.DONE
    async with unchanged(hall):
        assert (await hall.backend.close_event(hall.event)).status is Status.EVENT_NOT_FOUND
        assert (await hold(hall, "A-1")).status is Status.EVENT_NOT_FOUND
        assert (await reading(hall)).status is Status.EVENT_NOT_FOUND
        reply, _ = await hall.backend.set_event_state(hall.event, other.document)
        assert reply.status is Status.EVENT_NOT_FOUND


async def test_the_map_and_the_counters_are_of_one_form(hall: Hall) -> None:
    # Given another event of several zones, with seats blocked from the start, beside the first,
    stalls, floor = document(rows=2, per_row=3).zones
    box = msgspec.structs.replace(
        stalls,
        zone_id="box",
        seats=tuple(msgspec.structs.replace(seat, seat_id=f"box {seat.seat_id}") for seat in stalls.seats),
    )
    doc = msgspec.structs.replace(
        document(), zones=(stalls, floor, box), blocked_seat_ids=frozenset({"A-2", "box B-3"})
    )
    event = compile_event(uuid4(), doc)
    await hall.save(event)
    opened = await hall.backend.open_event(event)

    found = await hall.backend.read_event(event.organization_id, event.event_id, want_map=True)

    assert opened.status is Status.DONE
    assert found.map == event.map == b".b.|...|...|..b|"
    assert found.zones == (ZoneCounts(0, 6, 6, 0, 0, 1), ZoneCounts(1, 50, 0, 0, 0, 0), ZoneCounts(2, 6, 6, 0, 0, 1))
    assert ordinals(event, ["box A-1"]) == [(2, 8)]
    without = await hall.backend.read_event(event.organization_id, event.event_id, want_map=False)
    assert without.map == b""
    stranger = await hall.backend.read_event(uuid4(), event.event_id, want_map=True)
    assert (stranger.status, stranger.map) == (Status.EVENT_NOT_FOUND, b"")


async def test_holds_are_read_by_owner_or_by_id(hall: Hall) -> None:
    user, ids = uuid4(), (hall.event.organization_id, hall.event.event_id)
    first, second, strangers = (
        await held(hall, "A-1", user=user),
        await held(hall, "A-2", user=user),
        await held(hall, "B-1"),
    )

    async def found(**wish: object) -> list[object]:
        answer = await hall.backend.read_holds(*ids, **wish)
        assert (answer.status, answer.position.shard) == (Status.DONE, shard(hall))
        return [stored.hold_id for stored in answer.holds]

    assert await found(user_id=user) == [first, second]
    assert await found(user_id=None, hold_ids=[strangers, uuid4(), first]) == [strangers, first]
    assert await found(user_id=user, hold_ids=[strangers, first]) == [first]
    nobody = await hall.backend.read_holds(*ids, user_id=None)
    assert nobody.status is Status.INVALID_REQUEST
    elsewhere = await hall.backend.read_holds(uuid4(), ids[1], user_id=None, hold_ids=[first])
    assert elsewhere.holds == ()


async def test_administration_is_fenced(hall: Hall) -> None:
    await hall.take_out_of_service()

    async with unchanged(hall):
        backend, event = hall.backend, hall.event
        assert (await backend.block_seats(event, seats=seats(hall, "A-1"))).status is Status.FENCED
        assert (await backend.unblock_seats(event, seats=seats(hall, "A-1"))).status is Status.FENCED
        assert (await backend.open_event(event)).status is Status.FENCED
        assert (await backend.set_event_state(event, event.document))[0].status is Status.FENCED
        assert (await backend.close_event(event)).status is Status.FENCED
