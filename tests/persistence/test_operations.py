"""Log entries as operations: each script's, those that no script has written, and how a batch is cut into phases."""

import struct
from collections.abc import AsyncIterator
from itertools import pairwise
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.audit import Actor
from holdfast.engine.layout import EventState
from holdfast.engine.records import Block, HoldRecord, LogEntry, Pair
from holdfast.persistence.operations import (
    Administer,
    End,
    Extend,
    Hold,
    Operation,
    Sell,
    read_operation,
    split_phases,
    ticket_id,
)
from support.engine import Stage, stage
from support.persisting import CALLER
from support.scripts import allocate, entries, held, pairs, places_held, reap

META = CALLER.meta()
AS_READ = Actor(CALLER.address, CALLER.user_agent, CALLER.request_id)


@pytest.fixture
async def on(redis_url: str) -> AsyncIterator[Stage]:
    async with stage(redis_url) as opened:
        yield opened


async def last(on: Stage, count: int = 1) -> list[Operation]:
    return [read_operation(entry) for entry in (await entries(on))[-count:]]


async def test_a_hold_of_named_seats(on: Stage) -> None:
    user = uuid4()
    hold_id = await held(on, "A-1", "A-2", user=user, cart="cart", fingerprint="print", address="home", meta=META)

    (hold,) = await last(on)

    assert isinstance(hold, Hold)
    assert hold.hold_id == hold_id
    assert hold.caller == AS_READ
    assert (hold.entry.organization_id, hold.entry.event_id) == (on.event.organization_id, on.event.event_id)
    assert hold.record.user_id == user
    assert hold.record.seats == pairs(on, "A-1", "A-2")
    assert hold.record.quantities == ()
    assert (hold.record.cart, hold.record.fingerprint, hold.record.address) == ("cart", "print", "home")
    assert hold.record.created_ms == hold.entry.at_ms
    assert hold.touches == {hold_id, *((on.event.event_id, seat.value) for seat in pairs(on, "A-1", "A-2"))}


async def test_a_hold_of_the_best_seats(on: Stage) -> None:
    reply = await allocate(on, 3)

    (hold,) = await last(on)

    assert isinstance(hold, Hold)
    assert hold.record.seats == reply.seats
    assert hold.caller == Actor()


async def test_a_hold_of_places(on: Stage) -> None:
    hold_id = await places_held(on, 4)

    (hold,) = await last(on)

    assert isinstance(hold, Hold)
    assert hold.record.quantities == (Pair(1, 4),)
    assert hold.touches == {hold_id}


@pytest.mark.parametrize("reason", ["user_cancelled", "payment_failed", "admin_override", "not_persisted"])
async def test_a_release(on: Stage, reason: str) -> None:
    seats, places = await held(on, "A-1", "B-1"), await places_held(on, 2)
    await on.backend.release_holds(on.event, [seats, places], user_id=None, reason=reason, meta=META)

    (release,) = await last(on)

    assert isinstance(release, End)
    assert release.entry.operation == "release"
    assert release.entry.hold_ids == (seats, places)
    assert release.blocks == (Block(pairs(on, "A-1", "B-1"), ()), Block((), (Pair(1, 2),)))
    assert (release.reason, release.checkout) == (reason, "")
    assert release.caller == AS_READ
    assert {seats, places, (on.event.event_id, on.event.seats["B-1"].value)} <= release.touches


async def test_the_end_of_a_checkout_by_somebody_else(on: Stage) -> None:
    user, who = uuid4(), Actor("192.0.2.1", "desk/1", "request-9", "web", str(uuid4()), "the card was refused")
    hold_id = await held(on, "A-1", user=user)
    await on.backend.extend_holds(
        on.event, [hold_id], user_id=user, key="k", extension_ms=1000, total_ms=1_200_000, checkout="check"
    )
    await on.backend.release_holds(
        on.event, [hold_id], user_id=None, reason="payment_failed", checkout="check", meta=who.meta()
    )

    (release,) = await last(on)

    assert isinstance(release, End)
    assert (release.reason, release.checkout, release.caller) == ("payment_failed", "check", who)


async def test_an_expiry_by_the_reaper(on: Stage) -> None:
    first, second = await held(on, "A-1"), await held(on, "A-2")
    await on.lapse(first, second)
    assert await reap(on) == 2

    (expiry,) = await last(on)

    assert isinstance(expiry, End)
    assert expiry.entry.operation == "expire"
    assert set(expiry.entry.hold_ids) == {first, second}
    assert expiry.reason == "ttl_expired"
    assert {block.seats for block in expiry.blocks} == {pairs(on, "A-1"), pairs(on, "A-2")}


async def test_an_expiry_in_the_way_of_a_hold_is_an_entry_of_its_own(on: Stage) -> None:
    gone = await held(on, "A-1")
    await on.lapse(gone)
    fresh = await held(on, "A-1")

    expiry, hold = await last(on, 2)

    assert isinstance(expiry, End)
    assert isinstance(hold, Hold)
    assert (expiry.entry.hold_ids, hold.hold_id) == ((gone,), fresh)
    assert [len(phase) for phase in split_phases([expiry, hold])] == [1, 1]


async def test_an_extension(on: Stage) -> None:
    user = uuid4()
    holds = [await held(on, "A-1", user=user), await held(on, "A-2", user=user)]
    reply = await on.backend.extend_holds(
        on.event, holds, user_id=user, key="k", extension_ms=1000, total_ms=1_200_000, checkout="check", meta=META
    )

    (extension,) = await last(on)

    assert isinstance(extension, Extend)
    assert extension.entry.hold_ids == tuple(holds)
    assert extension.ends_ms == reply.ends_ms
    assert (extension.checkout, extension.key, extension.caller) == ("check", "k", AS_READ)
    assert extension.touches == set(holds)


async def test_a_sale_of_a_live_and_an_expired_hold(on: Stage) -> None:
    live, expired = await held(on, "A-1"), await places_held(on, 2)
    await on.lapse(expired)
    await reap(on)
    await on.backend.confirm_holds(on.event, [live, expired], sale="sale-1", user_id=None, meta=META)

    (sale,) = await last(on)

    assert isinstance(sale, Sell)
    assert sale.entry.hold_ids == (live, expired)
    assert sale.blocks == (Block(pairs(on, "A-1"), ()), Block((), (Pair(1, 2),)))
    assert (sale.origins, sale.sale, sale.caller) == ("hx", "sale-1", AS_READ)


async def test_blocking_and_unblocking(on: Stage) -> None:
    wish = {"seats": pairs(on, "A-1", "A-2"), "quantities": [(1, 3)]}
    await on.backend.block_seats(on.event, **wish, meta=META)
    await on.backend.unblock_seats(on.event, **wish, meta=META)

    block, unblock = await last(on, 2)

    for operation, name in ((block, "block"), (unblock, "unblock")):
        assert isinstance(operation, Administer)
        assert operation.entry.operation == name
        assert operation.block == Block(pairs(on, "A-1", "A-2"), (Pair(1, 3),))
        assert operation.caller == AS_READ


async def test_opening_changing_and_closing_an_event(on: Stage) -> None:
    (opened,) = await last(on)
    first_version = on.event.version
    floor = msgspec.structs.replace(on.event.document.zones[1], capacity=60)
    await on.change(state=EventState.CLOSED, zones=(on.event.document.zones[0], floor))
    (changed,) = await last(on)
    await on.backend.close_event(on.event, meta=META)
    (closed,) = await last(on)

    assert isinstance(opened, Administer)
    assert isinstance(changed, Administer)
    assert isinstance(closed, Administer)
    assert opened.config[:4] == (first_version, "live", "0", "0")
    assert opened.capacities == ()
    assert changed.config == (on.event.version, "closed", "0", "0")
    assert changed.capacities == (Pair(1, 60),)
    assert (closed.config, closed.block, closed.caller) == ((), None, AS_READ)


ENDS = struct.pack(">Q", 1)
EMPTY_BLOCK = struct.pack(">HH", 0, 0)


@pytest.mark.parametrize(
    ("operation", "holds", "body", "meta"),
    [
        ("steal", 1, b"", b""),
        ("hold", 0, b"", b""),
        ("hold", 1, b"short", b""),
        ("hold", 2, b"", b""),
        ("extend", 2, ENDS, b""),
        ("extend", 1, b"seven b", b""),
        ("release", 1, struct.pack(">HH", 1, 0), b""),
        ("release", 1, EMPTY_BLOCK + b"\xff", b""),
        ("sell", 2, EMPTY_BLOCK * 2 + b"h\nsale", b""),
        ("block", 0, b"", b""),
        ("state", 0, b"v live 0 0\nxxx", b""),
        ("close", 0, b"", b"{"),
        ("close", 0, b"", b'["address", 7]'),
    ],
)
def test_what_no_script_has_written_cannot_be_read(operation: str, holds: int, body: bytes, meta: bytes) -> None:
    entry = entry_of(1, operation, tuple(UUID(int=each) for each in range(holds)), body=body, meta=meta)

    with pytest.raises(ValueError, match=r"."):
        read_operation(entry)


def test_tickets_are_derived_from_their_hold_and_place() -> None:
    hold_id = UUID("11111111-2222-3333-4444-555555555555")

    # Another release must come to the same tickets, or a replay would issue second ones.
    assert ticket_id(hold_id, 0, 7) == UUID("2fd248a0-818e-50ad-835a-cce7f6085216")
    assert len({ticket_id(hold_id, zone, place) for zone in range(12) for place in range(120)}) == 12 * 120
    assert ticket_id(hold_id, 0, 7) != ticket_id(uuid4(), 0, 7)


def entry_of(
    seq: int, operation: str, hold_ids: tuple[UUID, ...], *, body: bytes = b"", meta: bytes = b"", event: int = 1
) -> LogEntry:
    return LogEntry(1, seq, operation, 1_000, UUID(int=9), UUID(int=event), hold_ids, body, meta)


def operation_of(seq: int, kind: str, event: int, holds: list[int], seats: list[int]) -> Operation:
    """An operation on holds and seats by number. Events have holds of their own, as the ids of holds are unique."""
    hold_ids = tuple(UUID(int=1000 * event + each) for each in holds)
    units = tuple(Pair(0, seat) for seat in seats)
    blocks = (Block(units, ()), *(Block((), ()) for _ in hold_ids[1:]))
    if kind == "hold":
        record = HoldRecord(UUID(int=1), "h", seq, 1_000, 1_000, units, (), "", "", "", "", "")
        entry = entry_of(seq, kind, hold_ids[:1], event=event)
        return Hold(entry=entry, caller=Actor(), hold_id=hold_ids[0], record=record)
    entry = entry_of(seq, kind, hold_ids, event=event)
    if kind == "extend":
        return Extend(entry=entry, caller=Actor(), ends_ms=(2_000,) * len(hold_ids), checkout="", key="k")
    if kind == "sell":
        return Sell(entry=entry, caller=Actor(), blocks=blocks, origins="h" * len(hold_ids), sale="s")
    if kind == "block":
        return Administer(entry=entry_of(seq, kind, (), event=event), caller=Actor(), block=Block(units, ()))
    return End(entry=entry, caller=Actor(), blocks=blocks, reason="user_cancelled", checkout="")


@st.composite
def batches(draw: st.DrawFn) -> list[Operation]:
    number = st.integers(0, 7)
    some = st.lists(number, min_size=1, max_size=3, unique=True)
    kinds = st.sampled_from(["hold", "hold", "release", "expire", "extend", "sell", "block"])
    rows = draw(st.lists(st.tuples(kinds, st.integers(1, 2), some, some), max_size=30))
    return [operation_of(seq, *row) for seq, row in enumerate(rows, start=1)]


@given(batches())
def test_phases_keep_the_order_and_change_nothing_twice(operations: list[Operation]) -> None:
    phases = list(split_phases(operations))

    assert [operation for phase in phases for operation in phase] == operations
    for phase in phases:
        touched = [touch for operation in phase for touch in operation.touches]
        assert len(touched) == len(set(touched))
        assert len(phase) == 1 or not any(isinstance(operation, Administer) for operation in phase)


@given(batches())
def test_phases_are_no_shorter_than_they_must_be(operations: list[Operation]) -> None:
    phases = list(split_phases(operations))

    for phase, following in pairwise(phases):
        touched = {touch for operation in phase for touch in operation.touches}
        administered = isinstance(phase[-1], Administer) or isinstance(following[0], Administer)
        assert administered or not touched.isdisjoint(following[0].touches)
