"""unblock_seats: puts blocked seats or places back on sale, all or none."""

from typing import Any
from uuid import uuid4

import pytest

from holdfast.engine.layout import compile_event
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
    refused,
    seat_byte,
    sell,
    take_places,
    unchanged,
)


async def block(on: Stage, *seat_ids: str, places: int = 0) -> None:
    quantities = [(1, places)] if places else []
    reply = await on.backend.block_seats(on.event, seats=pairs(on, *seat_ids), quantities=quantities)
    assert reply.status is Status.DONE


async def test_done(on: Stage) -> None:
    await block(on, "A-1", "A-2", "B-1", places=10)

    reply = await on.backend.unblock_seats(on.event, seats=pairs(on, "A-1", "B-1"), quantities=[(1, 4)])

    assert reply.status is Status.DONE
    assert (reply.seats, reply.quantities) == (pairs(on, "A-1", "B-1"), ((1, 4),))
    assert ((await counts(on, 0)).blocked, (await counts(on, 1)).blocked) == (1, 6)
    entry = (await entries(on))[-1]
    assert (entry.operation, entry.hold_ids, entry.seq) == ("unblock", (), reply.position.seq)
    assert unpack_blocks(entry.body, 1) == (((reply.seats, reply.quantities),), b"")
    assert (await on.hold("A-1", "B-1")).status is Status.DONE
    assert (await take_places(on, 45)).status is Status.BLOCK_AT_CAPACITY
    assert (await take_places(on, 44)).status is Status.DONE


async def test_done_changes_only_what_is_blocked(on: Stage) -> None:
    await block(on, "A-1", places=3)
    live = await held(on, "A-2")
    await sell(on, await held(on, "A-3"))

    reply = await on.backend.unblock_seats(
        on.event, seats=pairs(on, "A-1", "A-2", "A-3", "A-4"), quantities=[(1, 2**32 - 1)]
    )

    assert (reply.status, reply.seats, reply.quantities) == (Status.DONE, pairs(on, "A-1"), ((1, 3),))
    assert [await seat_byte(on, f"A-{number}") for number in range(1, 5)] == [b".", b"h", b"s", b"."]
    assert (await on.hold("A-2")).status is Status.SEAT_HELD_BY_ANOTHER_USER
    assert live


async def test_done_for_seats_the_document_blocks(server_url: str) -> None:
    async with audited(server_url, document(blocked_seat_ids=frozenset({"A-1"}))) as on:
        assert (await counts(on, 0)).blocked == 1

        assert (await on.backend.unblock_seats(on.event, seats=pairs(on, "A-1"))).status is Status.DONE
        assert (await counts(on, 0)).blocked == 0


async def test_fenced(on: Stage) -> None:
    await block(on, "A-1")
    await on.redis.delete(on.keys.key("open"))

    await refused(on, Status.FENCED, "unblock_seats")


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
        ("quantities", bytes(606)),
    ],
)
async def test_invalid_request(on: Stage, argument: str, value: bytes) -> None:
    await block(on, "A-1")

    await refused(on, Status.INVALID_REQUEST, "unblock_seats", **{argument: value})

    assert (await call(on, "unblock_seats"))["status"] is Status.DONE


async def test_event_not_found(on: Stage) -> None:
    await block(on, "A-1")
    stranger = compile_event(uuid4(), on.event.document)

    async with unchanged(on):
        reply = await on.backend.unblock_seats(stranger, seats=pairs(on, "A-1"))

    assert reply.status is Status.EVENT_NOT_FOUND


async def test_stale_config(on: Stage) -> None:
    await block(on, "A-1")
    old = on.event
    await on.change(name="Another night")

    async with unchanged(on):
        assert (await on.backend.unblock_seats(old, seats=pairs(on, "A-1"))).status is Status.STALE_CONFIG


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"seats": [(0, 0), (0, 10)]}, {"seats": ((0, 10),)}),  # Between two rows.
        ({"seats": [(0, 0), (0, 9999)]}, {"seats": ((0, 9999),)}),
        ({"seats": [(7, 0)]}, {"seats": ((7, 0),)}),
        ({"seats": [(1, 0)]}, {"seats": ((1, 0),)}),
        ({"quantities": [(0, 2)]}, {"quantities": ((0, 2),)}),
        ({"seats": [(0, 0)], "quantities": [(1, 1), (7, 2)]}, {"quantities": ((7, 2),)}),
    ],
    ids=str,
)
async def test_seat_not_found(on: Stage, wish: dict[str, Any], named: dict[str, Any]) -> None:
    await block(on, "A-1", places=3)

    async with unchanged(on):
        reply = await on.backend.unblock_seats(on.event, **wish)

    assert reply.status is Status.SEAT_NOT_FOUND
    assert {"seats": reply.seats, "quantities": reply.quantities} == {"seats": (), "quantities": ()} | named


async def test_repeated(on: Stage) -> None:
    await block(on, "A-1", places=2)
    wish: dict[str, Any] = {"seats": pairs(on, "A-1"), "quantities": [(1, 2)]}
    await on.backend.unblock_seats(on.event, **wish)

    async with unchanged(on):
        reply = await on.backend.unblock_seats(on.event, **wish)

    assert (reply.status, reply.seats, reply.quantities) == (Status.REPEATED, (), ())


async def test_arguments_at_their_bounds(on: Stage) -> None:
    await block(on, "A-1")

    assert (await call(on, "unblock_seats", meta=b"m" * 4096))["status"] is Status.DONE
