"""The packed layouts. Their other side is Lua: tests/lua proves that scripts write what is read here."""

import struct
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.records import (
    Block,
    Pair,
    ZoneCounts,
    pack_ids,
    pack_pairs,
    pack_rules,
    pack_zone,
    pack_zone_specs,
    unpack_blocks,
    unpack_ends,
    unpack_entry,
    unpack_ids,
    unpack_pairs,
    unpack_record,
    unpack_zone_specs,
    unpack_zones,
)

MALFORMED = (ValueError, KeyError, struct.error)

U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
PAIRS = st.lists(st.tuples(U16, U32), max_size=8)
LINES = st.text(max_size=12).filter(lambda text: "\n" not in text)


def pack_record(  # The counterpart of lua/include/write_record.lua.
    user: UUID, numbers: tuple[int, int, int], seats: list[Any], quantities: list[Any], texts: list[str]
) -> bytes:
    head = struct.pack(">16scQQIHH", user.bytes, b"h", *numbers, len(seats), len(quantities))
    return head + pack_pairs(seats) + pack_pairs(quantities) + "\n".join(texts).encode()


def pack_block(seats: list[Any], quantities: list[Any]) -> bytes:
    return struct.pack(">HH", len(seats), len(quantities)) + pack_pairs(seats) + pack_pairs(quantities)


@given(PAIRS)
def test_pairs_come_back(pairs: list[tuple[int, int]]) -> None:
    packed = pack_pairs(pairs)

    assert unpack_pairs(packed) == tuple(pairs)
    assert len(packed) == 6 * len(pairs)


@pytest.mark.parametrize("pair", [(-1, 0), (65536, 0), (0, -1), (0, 2**32), (0, 0.5), (0, "1")])
def test_a_pair_that_does_not_fit_is_refused(pair: Any) -> None:
    with pytest.raises(ValueError, match="a zone is 0 to 65535"):
        pack_pairs([(0, 0), pair])


@pytest.mark.parametrize("length", [1, 5, 7])
def test_pairs_of_a_broken_length_are_refused(length: int) -> None:
    with pytest.raises(struct.error):
        unpack_pairs(bytes(length))


@given(st.lists(st.uuids(), max_size=8))
def test_ids_come_back(ids: list[UUID]) -> None:
    assert unpack_ids(pack_ids(ids)) == tuple(ids)


@pytest.mark.parametrize("length", [1, 15, 17])
def test_ids_of_a_broken_length_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="16"):
        unpack_ids(bytes(length))


@given(st.lists(U64, max_size=8))
def test_ends_come_back(ends: list[int]) -> None:
    assert unpack_ends(struct.pack(f">{len(ends)}Q", *ends)) == tuple(ends)


@given(st.lists(st.tuples(U16, U32, U32, U32, U32, U32), max_size=8))
def test_zones_come_back_in_order(zones: list[tuple[int, ...]]) -> None:
    """The server gives the fields of a hash in any order."""
    packed = b"".join(struct.pack(">HIIIII", *zone) for zone in zones)

    assert unpack_zones(packed) == tuple(sorted(zones))


@given(U32, U32, U32, U32, U32)
def test_the_counters_of_a_zone_are_what_reading_an_event_gives(
    capacity: int, seats: int, held: int, sold: int, blocked: int
) -> None:
    packed = struct.pack(">H", 7) + pack_zone(capacity, seats, held=held, sold=sold, blocked=blocked)

    assert unpack_zones(packed) == (ZoneCounts(7, capacity, seats, held, sold, blocked),)


@pytest.mark.parametrize(
    ("zone", "free"),
    [
        (ZoneCounts(0, capacity=10, seats=10, held=2, sold=3, blocked=1), 4),
        (ZoneCounts(0, capacity=6, seats=10, held=2, sold=3, blocked=1), 1),  # Capacity below the number of seats.
        (ZoneCounts(0, capacity=9, seats=10, held=0, sold=0, blocked=3), 7),  # Blocked seats bite before capacity.
        (ZoneCounts(1, capacity=50, seats=0, held=10, sold=20, blocked=5), 15),
        (ZoneCounts(1, capacity=5, seats=0, held=4, sold=4, blocked=0), 0),  # Capacity lowered under what is taken.
    ],
)
def test_free_units_of_a_zone(zone: ZoneCounts, free: int) -> None:
    assert zone.free == free


@given(st.lists(st.tuples(U32, U32, U32), max_size=8))
def test_zone_specs_come_back(specs: list[tuple[int, int, int]]) -> None:
    assert unpack_zone_specs(pack_zone_specs(specs)) == tuple(specs)


def test_rules_are_in_the_order_lua_reads_them() -> None:
    assert pack_rules(range(1, 16)) == struct.pack(">BQQIHIIIIIBBBIB", *range(1, 16))
    assert len(pack_rules([0] * 15)) == 51


@pytest.mark.parametrize("numbers", [[0] * 14, [0] * 16, [256] + [0] * 14, [-1] + [0] * 14])
def test_rules_that_do_not_fit_are_refused(numbers: list[int]) -> None:
    with pytest.raises(struct.error):
        pack_rules(numbers)


@given(
    st.uuids(),
    st.tuples(U64, U64, U32),
    PAIRS,
    PAIRS,
    st.lists(LINES, min_size=5, max_size=5),
)
def test_a_record_comes_back(
    user: UUID, numbers: tuple[int, int, int], seats: list[Any], quantities: list[Any], texts: list[str]
) -> None:
    record = unpack_record(pack_record(user, numbers, seats, quantities, texts))

    assert (record.user_id, record.state) == (user, "h")
    assert (record.seq, record.created_ms, record.ttl_ms) == numbers
    assert (record.seats, record.quantities) == (tuple(seats), tuple(quantities))
    assert [record.fingerprint, record.address, record.cart, record.checkout, record.extension] == texts


@given(st.data())
def test_a_record_cut_off_anywhere_is_refused(data: st.DataObject) -> None:
    """The last text may lose its end unnoticed; everything before its start may not."""
    whole = pack_record(uuid4(), (1, 2, 3), [(0, 1), (0, 2)], [(1, 3)], ["f", "a", "c", "k", "xyz"])
    end = data.draw(st.integers(0, whole.rindex(b"\n")))

    with pytest.raises(MALFORMED):
        unpack_record(whole[:end])


def test_a_record_with_a_line_too_many_is_refused() -> None:
    whole = pack_record(uuid4(), (1, 2, 3), [(0, 1)], [], ["f", "a", "c", "k", "x"])

    with pytest.raises(ValueError, match="too many values"):
        unpack_record(whole + b"\nmore")


@given(st.lists(st.tuples(PAIRS, PAIRS), max_size=5), st.binary(max_size=10))
def test_blocks_come_back_with_what_follows_them(blocks: list[Any], rest: bytes) -> None:
    body = b"".join(pack_block(*block) for block in blocks) + rest

    assert unpack_blocks(body, len(blocks)) == (
        tuple(Block(tuple(map(Pair._make, seats)), tuple(map(Pair._make, places))) for seats, places in blocks),
        rest,
    )


@given(st.data())
def test_blocks_cut_off_anywhere_are_refused(data: st.DataObject) -> None:
    """Also between two pairs, where every pair that is left would look right."""
    whole = pack_block([(0, 1), (0, 2)], [(1, 3)]) + pack_block([(0, 4)], [])
    end = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(MALFORMED):
        unpack_blocks(whole[:end], 2)


ENTRY = {
    b"op": b"hold",
    b"head": struct.pack(">Q", 1_790_000_000_123) + uuid4().bytes + uuid4().bytes,
    b"holds": uuid4().bytes,
    b"body": b"body",
    b"meta": b"{}",
}


def test_a_log_entry_is_read() -> None:
    entry = unpack_entry(b"7-42", ENTRY)

    assert (entry.epoch, entry.seq, entry.operation, entry.at_ms) == (7, 42, "hold", 1_790_000_000_123)
    assert entry.organization_id.bytes + entry.event_id.bytes == ENTRY[b"head"][8:]
    assert [each.bytes for each in entry.hold_ids] == [ENTRY[b"holds"]]
    assert (entry.body, entry.meta) == (b"body", b"{}")


@pytest.mark.parametrize("missing", sorted(ENTRY))
def test_a_log_entry_without_a_field_is_refused(missing: bytes) -> None:
    with pytest.raises(KeyError):
        unpack_entry(b"7-42", {name: value for name, value in ENTRY.items() if name != missing})


@pytest.mark.parametrize("stream_id", [b"", b"7", b"7-", b"-42", b"seven-42", b"7-42-1"])
def test_a_log_entry_under_a_broken_id_is_refused(stream_id: bytes) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        unpack_entry(stream_id, ENTRY)


@pytest.mark.parametrize(("field", "value"), [(b"head", b"short"), (b"holds", b"short"), (b"op", b"\xff")])
def test_a_log_entry_with_a_broken_field_is_refused(field: bytes, value: bytes) -> None:
    with pytest.raises(MALFORMED):
        unpack_entry(b"7-42", ENTRY | {field: value})
