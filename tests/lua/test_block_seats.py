"""block_seats: takes seats or places out of sale, all or none."""

from typing import Any
from uuid import uuid4

import pytest

from holdfast.engine.layout import compile_event
from holdfast.engine.records import unpack_blocks
from holdfast.engine.status import Status
from support.engine import Stage, document
from support.scripts import (
    RETENTION_MS,
    audited,
    call,
    counts,
    entries,
    held,
    kept_for_ms,
    operations,
    pairs,
    places_held,
    refused,
    seat_byte,
    sell,
    take_places,
    unchanged,
)


async def test_done(on: Stage) -> None:
    reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "B-2"), quantities=[(1, 5)], meta=b'{"by":1}')

    assert reply.status is Status.DONE
    assert (reply.seats, reply.quantities) == (pairs(on, "A-1", "B-2"), ((1, 5),))
    assert ((await counts(on, 0)).blocked, (await counts(on, 1)).blocked) == (2, 5)
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids, entry.meta, entry.seq) == ("block", (), b'{"by":1}', reply.position.seq)
    assert unpack_blocks(entry.body, 1) == (((reply.seats, reply.quantities),), b"")
    assert (await on.hold("A-1")).status is Status.SEAT_NOT_AVAILABLE
    assert (await take_places(on, 46)).status is Status.BLOCK_AT_CAPACITY
    assert (await take_places(on, 45)).status is Status.DONE


async def test_done_changes_only_what_was_not_blocked(on: Stage) -> None:
    await on.backend.block_seats(on.event, seats=pairs(on, "A-1"))

    reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2"))

    assert (reply.status, reply.seats) == (Status.DONE, pairs(on, "A-2"))
    assert (await counts(on, 0)).blocked == 2


async def test_done_where_the_holder_is_overdue(on: Stage) -> None:
    overdue = await held(on, "A-1", "A-2")
    await on.lapse(overdue)

    reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1"))

    assert reply.status is Status.DONE
    assert await operations(on) == ["open", "hold", "expire", "block"]
    assert (await entries(on))[-2].hold_ids == (overdue,)
    assert await kept_for_ms(on, overdue, reply.now_ms) == RETENTION_MS
    assert (await seat_byte(on, "A-1"), await seat_byte(on, "A-2")) == (b"b", b".")


async def test_a_thousand_seats_at_once(server_url: str) -> None:
    async with audited(server_url, document(rows=11, per_row=100)) as on:
        seats = list(on.event.seats.values())
        async with unchanged(on):
            assert (await on.backend.block_seats(on.event, seats=seats[:1001])).status is Status.INVALID_REQUEST

        assert (await on.backend.block_seats(on.event, seats=seats[:1000])).status is Status.DONE
        assert (await counts(on, 0)).blocked == 1000


async def test_fenced(on: Stage) -> None:
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "block_seats")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scope", b"x" * 31),
        ("meta", b"x" * 4097),
        ("seats", b""),
        ("seats", b"x" * 5),
        ("seats", bytes(12)),  # The same seat twice.
        ("seats", bytes(6006)),
        ("quantities", b"x" * 7),
        ("quantities", b"\0\1\0\0\0\1" * 2),
        ("quantities", b"\0\1\0\0\0\0"),  # Of nothing.
        ("quantities", bytes(606)),
        ("retention_ms", b""),
        ("retention_ms", b"-1"),
        ("retention_ms", b"2592000001"),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await refused(on, Status.INVALID_REQUEST, "block_seats", **{argument: value})

    assert (await call(on, "block_seats"))["status"] is Status.DONE


async def test_event_not_found(on: Stage) -> None:
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply = await on.backend.block_seats(stranger, seats=pairs(on, "A-1"))

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_stale_config(on: Stage) -> None:
    old = on.event
    await on.change(name="Another night")

    async with unchanged(on):
        assert (await on.backend.block_seats(old, seats=pairs(on, "A-1"))).status is Status.STALE_CONFIG


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"seats": [(0, 0), (0, 10)]}, {"seats": ((0, 10),)}),  # Between two rows.
        ({"seats": [(0, 0), (0, 9999)]}, {"seats": ((0, 9999),)}),
        ({"seats": [(0, 0), (0, 2**32 - 1)]}, {"seats": ((0, 2**32 - 1),)}),
        ({"seats": [(7, 0)]}, {"seats": ((7, 0),)}),
        ({"seats": [(1, 0)]}, {"seats": ((1, 0),)}),  # The floor has no seats,
        ({"quantities": [(0, 2)]}, {"quantities": ((0, 2),)}),  # and the orchestra no places.
        ({"seats": [(0, 0)], "quantities": [(1, 2), (7, 2)]}, {"quantities": ((7, 2),)}),
    ],
    ids=str,
)
async def test_seat_not_found(on: Stage, wish: dict[str, Any], named: dict[str, Any]) -> None:
    async with unchanged(on):
        reply = await on.backend.block_seats(on.event, **wish)

    assert reply.status is Status.SEAT_NOT_FOUND
    assert {"seats": reply.seats, "quantities": reply.quantities} == {"seats": (), "quantities": ()} | named


async def test_seat_not_available(on: Stage) -> None:
    await sell(on, await held(on, "A-2"))

    async with unchanged(on):
        reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2"))

    assert (reply.status, reply.seats) == (Status.SEAT_NOT_AVAILABLE, pairs(on, "A-2"))


async def test_seat_held_by_another_user(on: Stage) -> None:
    await held(on, "A-2")
    await on.lapse(await held(on, "A-3"))

    async with unchanged(on):
        reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2", "A-3"))

    assert (reply.status, reply.seats) == (Status.SEAT_HELD_BY_ANOTHER_USER, pairs(on, "A-2"))


async def test_block_at_capacity(on: Stage) -> None:
    await places_held(on, 30)
    await sell(on, await places_held(on, 10))
    await on.backend.block_seats(on.event, quantities=[(1, 5)])

    async with unchanged(on):
        reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1"), quantities=[(1, 6)])

    assert (reply.status, reply.quantities) == (Status.BLOCK_AT_CAPACITY, ((1, 6),))
    assert (await on.backend.block_seats(on.event, quantities=[(1, 5)])).status is Status.DONE
    assert (await counts(on, 1)).blocked == 10


@pytest.mark.parametrize("quantity", [51, 2**32 - 1])
async def test_block_at_capacity_for_a_huge_quantity(on: Stage, quantity: int) -> None:
    async with unchanged(on):
        reply = await on.backend.block_seats(on.event, quantities=[(1, quantity)])

    assert reply.status is Status.BLOCK_AT_CAPACITY


async def test_repeated(on: Stage) -> None:
    await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2"))

    async with unchanged(on):
        reply = await on.backend.block_seats(on.event, seats=pairs(on, "A-1", "A-2"))

    assert (reply.status, reply.seats) == (Status.REPEATED, ())


async def test_arguments_at_their_bounds(on: Stage) -> None:
    assert (await call(on, "block_seats", meta=b"m" * 4096))["status"] is Status.DONE
