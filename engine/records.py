"""The packed layouts that scripts and Python share; lua/include/layout.lua describes them."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec
from asyncpg.pgproto import pgproto

_PAIR = struct.Struct(">HI")
_COUNTERS = struct.Struct(">IIIII")
_ZONE = struct.Struct(">HIIIII")
_END = struct.Struct(">Q")
_HEAD = struct.Struct(">Q16s16s")
_BLOCK = struct.Struct(">HH")
_RECORD = struct.Struct(">16scQQIHH")
_RULES = struct.Struct(">BQQIHIIIIIBBBIB")
_STRETCH = struct.Struct(">HII")
_ZONE_SPEC = struct.Struct(">III")
_PAIRED_SEAT = struct.Struct(">IcH")
_ID_BYTES = 16

# A UUID like any other, made in a tenth of the time: an entry of the log has four.
_uuid = pgproto.UUID


class Pair(NamedTuple):
    """A zone, and the ordinal of a seat in it or a quantity of its places."""

    zone: int
    value: int


class ZoneCounts(NamedTuple):
    """What a zone counts. A general-admission zone has no seats."""

    zone: int
    capacity: int
    seats: int
    held: int
    sold: int
    blocked: int

    @property
    def free(self) -> int:
        """Units that can still be held."""
        places = self.seats or self.capacity
        return max(0, min(self.capacity - self.held - self.sold, places - self.held - self.sold - self.blocked))


class HoldRecord(msgspec.Struct, frozen=True):
    """A hold as Redis has it on record."""

    user_id: UUID
    state: str
    seq: int
    created_ms: int
    ttl_ms: int
    seats: tuple[Pair, ...]
    quantities: tuple[Pair, ...]
    fingerprint: str
    address: str
    cart: str
    checkout: str
    extension: str


class LogEntry(msgspec.Struct, frozen=True):
    """One entry of a shard's log. `body` depends on `operation`; see docs/architecture.md.

    `orphans` are the seats that a hold has left alone, where that is noted.
    """

    epoch: int
    seq: int
    operation: str
    at_ms: int
    organization_id: UUID
    event_id: UUID
    hold_ids: tuple[UUID, ...]
    body: bytes
    meta: bytes
    orphans: tuple[Pair, ...] = ()


class Block(NamedTuple):
    """What one hold, or one administrative call, covers in a log entry."""

    seats: tuple[Pair, ...]
    quantities: tuple[Pair, ...]


def pack_pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Pairs of zone and ordinal, or zone and quantity. Raises ValueError for what does not fit."""
    try:
        return b"".join([_PAIR.pack(zone, value) for zone, value in pairs])
    except struct.error:
        raise ValueError("a zone is 0 to 65535, an ordinal or a quantity 0 to 4294967295") from None


def unpack_pairs(packed: bytes) -> tuple[Pair, ...]:
    return tuple([Pair(zone, value) for zone, value in _PAIR.iter_unpack(packed)]) if packed else ()


def pack_ids(ids: Iterable[UUID]) -> bytes:
    return b"".join([each.bytes for each in ids])


def unpack_ids(packed: bytes) -> tuple[UUID, ...]:
    return tuple([_uuid(packed[at : at + _ID_BYTES]) for at in range(0, len(packed), _ID_BYTES)])


def unpack_ends(packed: bytes) -> tuple[int, ...]:
    return tuple(end for (end,) in _END.iter_unpack(packed))


def unpack_zones(packed: bytes) -> tuple[ZoneCounts, ...]:
    return tuple(sorted(ZoneCounts(*values) for values in _ZONE.iter_unpack(packed)))


def pack_zone(capacity: int, seats: int, *, held: int = 0, sold: int = 0, blocked: int = 0) -> bytes:
    """A zone's counters as its field of `counts` has them."""
    return _COUNTERS.pack(capacity, seats, held, sold, blocked)


def pack_zone_specs(specs: Iterable[tuple[int, int, int]]) -> bytes:
    """Capacity, first ordinal and bytes in the map of each zone."""
    return b"".join([_ZONE_SPEC.pack(*spec) for spec in specs])


def unpack_zone_specs(packed: bytes) -> tuple[tuple[int, int, int], ...]:
    return tuple(_ZONE_SPEC.iter_unpack(packed))


def pack_accessibility(companion_percent: int, wheelchair_limit: int, audited: bool) -> bytes:
    """The field `access` of `counts`."""
    return bytes((companion_percent, wheelchair_limit, audited))


def pack_paired_seats(seats: Iterable[tuple[int, bytes, Sequence[Pair]]]) -> bytes:
    """Wheelchair and companion seats: ordinal, byte while free, and the seats that belong to each."""
    return b"".join(
        [_PAIRED_SEAT.pack(ordinal, letter, len(others)) + pack_pairs(others) for ordinal, letter, others in seats]
    )


def pack_rules(numbers: Sequence[int]) -> bytes:
    """The numbers of lua/include/hold_rules.lua, in its order."""
    return _RULES.pack(*numbers)


def pack_stretches(stretches: Iterable[tuple[int, int, int]]) -> bytes:
    """Zones with the ordinals of their first and last seat."""
    return b"".join([_STRETCH.pack(*stretch) for stretch in stretches])


def pack_record(hold: HoldRecord) -> bytes:
    """A hold's record as scripts write it."""
    numbers = (hold.seq, hold.created_ms, hold.ttl_ms, len(hold.seats), len(hold.quantities))
    head = _RECORD.pack(hold.user_id.bytes, hold.state.encode(), *numbers)
    texts = "\n".join((hold.fingerprint, hold.address, hold.cart, hold.checkout, hold.extension))
    return head + pack_pairs(hold.seats) + pack_pairs(hold.quantities) + texts.encode()


def unpack_record(record: bytes) -> HoldRecord:
    user, state, seq, created_ms, ttl_ms, seat_count, quantity_count = _RECORD.unpack_from(record)
    seats_end = _RECORD.size + seat_count * _PAIR.size
    pairs_end = seats_end + quantity_count * _PAIR.size
    fingerprint, address, cart, checkout, extension = record[pairs_end:].decode().split("\n")
    return HoldRecord(
        user_id=_uuid(user),
        state=state.decode(),
        seq=seq,
        created_ms=created_ms,
        ttl_ms=ttl_ms,
        seats=unpack_pairs(record[_RECORD.size : seats_end]),
        quantities=unpack_pairs(record[seats_end:pairs_end]),
        fingerprint=fingerprint,
        address=address,
        cart=cart,
        checkout=checkout,
        extension=extension,
    )


def unpack_blocks(body: bytes, count: int) -> tuple[tuple[Block, ...], bytes]:
    """The blocks at the start of a log entry's body, and what follows them. Raises as unpack_entry does."""
    blocks, at = [], 0
    for _ in range(count):
        seat_count, quantity_count = _BLOCK.unpack_from(body, at)
        seats_from = at + _BLOCK.size
        seats_end = seats_from + seat_count * _PAIR.size
        at = seats_end + quantity_count * _PAIR.size
        if at > len(body):
            raise ValueError("a log entry's body ends within its blocks")
        blocks.append(Block(unpack_pairs(body[seats_from:seats_end]), unpack_pairs(body[seats_end:at])))
    return tuple(blocks), body[at:]


def unpack_entry(stream_id: bytes, fields: Mapping[bytes, bytes]) -> LogEntry:
    """A log entry as XREAD gives it. Raises ValueError, KeyError or struct.error for what no script has written."""
    epoch, _, seq = stream_id.partition(b"-")
    at_ms, organization, event = _HEAD.unpack(fields[b"head"])
    return LogEntry(
        epoch=int(epoch),
        seq=int(seq),
        operation=fields[b"op"].decode(),
        at_ms=at_ms,
        organization_id=_uuid(organization),
        event_id=_uuid(event),
        hold_ids=unpack_ids(fields[b"holds"]),
        body=fields[b"body"],
        meta=fields[b"meta"],
        orphans=unpack_pairs(fields.get(b"orphans", b"")),
    )


def unpack_whose(fields: Mapping[bytes, bytes]) -> tuple[UUID, UUID, tuple[UUID, ...]]:
    """The organisation, the event and the holds of a log entry, also of one of which nothing else can be read."""
    _, organization, event = _HEAD.unpack(fields[b"head"])
    return _uuid(organization), _uuid(event), unpack_ids(fields[b"holds"])


def unpack_scope(fields: Mapping[bytes, bytes]) -> tuple[int, int]:
    """The organisation and the event of a log entry, as the numbers that their UUIDs are."""
    _, organization, event = _HEAD.unpack(fields[b"head"])
    return int.from_bytes(organization), int.from_bytes(event)


def seats_of_hold(fields: Mapping[bytes, bytes]) -> tuple[int, int, list[int]]:
    """Of the log entry of a hold: the user as a number, when the hold ends, and the ordinals of its seats."""
    body = fields[b"body"]
    user, _, _, created_ms, ttl_ms, seat_count, _ = _RECORD.unpack_from(body)
    pairs = body[_RECORD.size : _RECORD.size + seat_count * _PAIR.size]
    return int.from_bytes(user), created_ms + ttl_ms, [ordinal for _, ordinal in _PAIR.iter_unpack(pairs)]


def seats_of_blocks(fields: Mapping[bytes, bytes]) -> list[int]:
    """Of the log entry of any other change of seats: the ordinals of all of them."""
    blocks, _ = unpack_blocks(fields[b"body"], len(fields[b"holds"]) // _ID_BYTES or 1)
    return [seat.value for block in blocks for seat in block.seats]
