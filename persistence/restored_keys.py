"""An event's keys in Redis as they follow from its rows in Postgres."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import HoldRecord, Pair, pack_pairs, pack_record, pack_zone
from holdfast.engine.search_digits import search_digits
from holdfast.persistence.postgres_event import HoldLine, PostgresEvent

_ID_BYTES = 16
_BYTES = {"held": b"h", "sold": b"s", "blocked": b"b"}
_STATES = {"active": "h", "converted": "s", "cancelled": "r", "expired": "x"}

# A list of holds this long keeps its user or address from holding more; the scripts shorten it before that.
_LISTED_HOLDS_MAX = 127

_WRITERS = {"counts": "hset", "holds": "hset", "expiry": "zadd", "ended": "zadd"}


class RestoredKeys(msgspec.Struct, frozen=True):
    """The value of each key; an empty one is no key at all."""

    counts: dict[bytes, bytes]
    map: bytes
    kinds: bytes
    owners: bytes
    holds: dict[bytes, bytes]
    expiry: dict[bytes, int]
    ended: dict[bytes, int]

    def has(self, what: str) -> bool:
        return bool(getattr(self, what))

    def write(self, pipeline: Any, what: str, name: bytes, chunk: int) -> None:
        """Queue the commands that write one of the keys under a name, in pieces that no server stalls on."""
        value: Any = getattr(self, what)
        if not value:
            return
        if what in ("map", "kinds", "owners"):
            pipeline.set(name, value)
            return
        items = list(value.items())
        for at in range(0, len(items), chunk):
            piece = dict(items[at : at + chunk])
            if _WRITERS[what] == "hset":
                pipeline.hset(name, mapping=piece)
            else:
                pipeline.zadd(name, piece)


def restore_keys(event: CompiledEvent, rows: PostgresEvent, epoch: int, retention_ms: int) -> RestoredKeys:
    """Build every key of an event for an epoch. Ended holds come back as long as they would have stayed on record."""
    seat_map = bytearray(event.map)
    owners = bytearray(_ID_BYTES * len(seat_map))
    for ordinal, seat in rows.seats.items():
        seat_map[ordinal : ordinal + 1] = _BYTES.get(seat.status) or event.seat_at[ordinal].category.free_letter
        if seat.hold_id is not None:
            owners[_ID_BYTES * ordinal : _ID_BYTES * (ordinal + 1)] = seat.hold_id.bytes
    return RestoredKeys(
        counts=_counts(rows) | _wheelchairs(event, rows) | {b"runs": search_digits(bytes(seat_map))},
        map=bytes(seat_map),
        kinds=event.kinds,
        owners=bytes(owners),
        holds=_holds(event, rows, epoch),
        expiry={hold_id.bytes: lines[0].ends_ms for hold_id, lines in rows.active.items()},
        ended={
            hold_id.bytes: (lines[0].ended_ms or 0) + retention_ms
            for hold_id, lines in rows.holds.items()
            if lines[0].status != "active"
        },
    )


def _counts(rows: PostgresEvent) -> dict[bytes, bytes]:
    config = {
        b"version": rows.version.encode(),
        b"state": rows.state.encode(),
        b"opens_ms": b"%d" % rows.opens_ms,
        b"closes_ms": b"%d" % rows.closes_ms,
    }
    zones = {
        b"%d" % zone.zone: pack_zone(zone.capacity, zone.seats, held=zone.held, sold=zone.sold, blocked=zone.blocked)
        for zone in rows.zones
    }
    return config | zones


def _wheelchairs(event: CompiledEvent, rows: PostgresEvent) -> dict[bytes, bytes]:
    """The rules for wheelchair seats, these and their companion seats, and who has taken them."""
    if not event.paired:
        return {}
    seats = {
        b"s%d" % ordinal: event.seat_at[ordinal].category.free_letter + pack_pairs(others)
        for ordinal, others in event.paired.items()
    }
    takers = {
        b"w%d" % ordinal: taker.user_id.bytes + (b"d" if taker.declined else b"")
        for ordinal, taker in rows.takers.items()
    }
    return {b"access": event.accessibility} | seats | takers


def _holds(event: CompiledEvent, rows: PostgresEvent, epoch: int) -> dict[bytes, bytes]:
    """The records, and the lists by which limits find a user's and an address's holds, oldest first."""
    policy = event.document.policy
    recent_ms = rows.now_ms - policy.rate_limit_seconds * 1000
    records: dict[bytes, bytes] = {}
    listed: dict[bytes, list[UUID]] = {}
    for hold_id, lines in rows.holds.items():
        first = lines[0]
        records[hold_id.bytes] = pack_record(_record(lines, epoch))
        if first.status == "active" or first.created_ms > recent_ms:
            listed.setdefault(b"u" + first.user_id.bytes, []).append(hold_id)
            if policy.max_holds_per_ip and first.address:
                listed.setdefault(b"a" + first.address.encode(), []).append(hold_id)
    lists = {field: _joined(hold_ids[-_LISTED_HOLDS_MAX:]) for field, hold_ids in listed.items()}
    return records | lists


def _joined(hold_ids: Iterable[UUID]) -> bytes:
    return b"".join(hold_id.bytes for hold_id in hold_ids)


def _record(lines: tuple[HoldLine, ...], epoch: int) -> HoldRecord:
    first = lines[0]
    # What another epoch has decided is in Postgres already: whoever is told of it again has nothing to wait for.
    seq = first.seq if first.epoch == epoch else 0
    return HoldRecord(
        user_id=first.user_id,
        state=_STATES[first.status],
        seq=seq,
        created_ms=first.created_ms,
        ttl_ms=first.ttl_ms,
        seats=tuple(Pair(line.zone, line.ordinal) for line in lines if line.ordinal is not None),
        quantities=tuple(Pair(line.zone, line.quantity) for line in lines if line.ordinal is None),
        fingerprint=first.fingerprint,
        address=first.address,
        cart=first.cart,
        checkout=first.checkout,
        extension=first.extension,
    )
