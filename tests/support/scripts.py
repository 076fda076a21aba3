"""Calls scripts word by word, as the engine never would, and looks at everything they left behind."""

import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.layout import EventDocument, SeatCategory, compile_event
from holdfast.engine.records import (
    HoldRecord,
    LogEntry,
    Pair,
    ZoneCounts,
    pack_pairs,
    pack_stretches,
    unpack_entry,
    unpack_record,
)
from holdfast.engine.search_digits import SEARCH_BLOCK_BYTES
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.status import Status
from holdfast.lua import scripts
from support.engine import Stage, document, stage

RETENTION_MS = 3_600_000
_CREATED_MS_AT = 25
RULES_BYTES = len(compile_event(uuid4(), document()).rules(max_backlog=0, retention_ms=0))
# Rules that sell, and let a call have as many units as the number can say.
GENEROUS_RULES = b"\x01" + bytes(20) + b"\xff\xff" + bytes(RULES_BYTES - 23)


async def call(on: Stage, script: str, **overrides: bytes) -> dict[str, Any]:
    """Run a script with arguments that are right, but for those given; the reply by the names in its header."""
    spec = scripts()[script]
    names = [argument.name for argument in spec.arguments]
    assert overrides.keys() <= set(names), f"{script} has no argument {overrides.keys() - set(names)}"
    values = _right_arguments(on) | overrides
    keys = [on.keys.key(key.name) for key in spec.keys]
    reply = await on.redis.evalsha(spec.sha, len(keys), *keys, *[values[name] for name in names])
    assert len(reply) == len(spec.reply)
    named = dict(zip([position.name for position in spec.reply], reply, strict=True))
    named["status"] = Status(named["status"])
    assert named["status"].name.lower() in spec.statuses
    return named


async def refused(on: Stage, status: Status, script: str, **overrides: bytes) -> dict[str, Any]:
    """Run a script that must answer with this status and write nothing."""
    async with unchanged(on):
        reply = await call(on, script, **overrides)
    assert reply["status"] is status
    return reply


@asynccontextmanager
async def unchanged(on: Stage) -> AsyncIterator[None]:
    """Fail if anything on the server differs after the block."""
    before = await contents(on)
    yield
    assert await contents(on) == before


async def contents(on: Stage) -> dict[bytes, Any]:
    """Every key of the server with its type, its value and its time to live.

    Not DUMP: the server may reorder a large hash while nobody writes to it.
    """
    redis, found = on.redis, {}
    for key in await redis.keys():
        kind = await redis.type(key)
        value: Any
        if kind == b"string":
            value = await redis.get(key)
        elif kind == b"hash":
            value = await redis.hgetall(key)
        elif kind == b"zset":
            value = await redis.zrange(key, 0, -1, withscores=True)
        elif kind == b"set":
            value = set(await redis.smembers(key))
        else:
            assert kind == b"stream", kind
            value = await redis.xrange(key)
        found[key] = (kind, value, await redis.pttl(key))
    return found


async def entries(on: Stage) -> list[LogEntry]:
    """The shard's log, which must be numbered without a gap."""
    decoded = [unpack_entry(stream_id, fields) for stream_id, fields in await on.log()]
    assert [(entry.epoch, entry.seq) for entry in decoded] == [(FIRST_EPOCH, i + 1) for i in range(len(decoded))]
    assert int(await on.redis.get(on.keys.key("seq")) or 0) == len(decoded)
    return decoded


async def operations(on: Stage) -> list[str]:
    return [entry.operation for entry in await entries(on)]


async def counts(on: Stage, zone: int) -> ZoneCounts:
    reading = await on.backend.read_event(on.event.organization_id, on.event.event_id, want_map=False)
    return reading.zones[zone]


async def record(on: Stage, hold_id: UUID) -> HoldRecord | None:
    stored = await on.redis.hget(on.keys.key("holds"), hold_id.bytes)
    return unpack_record(stored) if stored else None


async def kept_for_ms(on: Stage, hold_id: UUID, ended_ms: int) -> int:
    """How long after its end a hold stays on record."""
    forget_at_ms = await on.redis.zscore(on.keys.key("ended"), hold_id.bytes)
    assert forget_at_ms is not None
    return int(forget_at_ms) - ended_ms


async def seat_byte(on: Stage, seat_id: str) -> bytes:
    ordinal = on.event.seats[seat_id].value
    return await on.redis.getrange(on.keys.key("map"), ordinal, ordinal)


async def backdate(on: Stage, hold_id: UUID, by_ms: int) -> int:
    """Pretend that a hold was made so much earlier; returns when."""
    stored = await on.redis.hget(on.keys.key("holds"), hold_id.bytes)
    assert stored is not None
    (created_ms,) = struct.unpack_from(">Q", stored, _CREATED_MS_AT)
    earlier = struct.pack(">Q", created_ms - by_ms)
    patched = stored[:_CREATED_MS_AT] + earlier + stored[_CREATED_MS_AT + len(earlier) :]
    await on.redis.hset(on.keys.key("holds"), hold_id.bytes, patched)
    return int(created_ms - by_ms)


def pairs(on: Stage, *seat_ids: str) -> tuple[Pair, ...]:
    return tuple(on.event.seats[each] for each in seat_ids)


async def take_places(on: Stage, quantity: int, user: UUID | None = None, **holder: Any) -> HoldReply:
    """Hold places on the general-admission floor of the usual document."""
    who = Holder(hold_id=holder.pop("hold_id", None) or uuid4(), user_id=user or uuid4(), **holder)
    return await on.backend.hold_seats(on.event, who, quantities=[(1, quantity)])


async def allocate(
    on: Stage,
    count: int,
    *,
    zones: Sequence[int] = (0,),
    categories: Collection[SeatCategory] = (),
    user: UUID | None = None,
    **holder: Any,
) -> HoldReply:
    who = Holder(hold_id=holder.pop("hold_id", None) or uuid4(), user_id=user or uuid4(), **holder)
    return await on.backend.allocate_seats(on.event, who, zones=zones, count=count, categories=categories)


async def held(on: Stage, *seat_ids: str, **holder: Any) -> UUID:
    """Hold seats, which must succeed; the hold's id."""
    reply = await on.hold(*seat_ids, **holder)
    assert reply.status is Status.DONE
    assert reply.hold_id is not None
    return reply.hold_id


async def places_held(on: Stage, quantity: int, **holder: Any) -> UUID:
    """Hold places, which must succeed; the hold's id."""
    reply = await take_places(on, quantity, **holder)
    assert reply.status is Status.DONE
    assert reply.hold_id is not None
    return reply.hold_id


async def sell(on: Stage, *hold_ids: UUID, sale: str = "sale-1") -> None:
    reply = await on.backend.confirm_holds(on.event, hold_ids, sale=sale, user_id=None)
    assert reply.status is Status.DONE


async def release(on: Stage, *hold_ids: UUID) -> None:
    reply = await on.backend.release_holds(on.event, hold_ids, user_id=None, reason="admin_override")
    assert reply.status is Status.DONE


async def reap(on: Stage, limit: int = 100) -> int:
    """One run of the reaper; how many holds it expired."""
    reply = await on.backend.expire_holds(on.event.organization_id, on.event.event_id, limit=limit)
    assert reply.status is Status.DONE
    return reply.expired


@asynccontextmanager
async def audited(url: str, doc: EventDocument | None = None, **backend: Any) -> AsyncIterator[Stage]:
    """A stage whose books must balance in the end."""
    async with stage(url, doc, **backend) as on:
        yield on
        await audit(on)


async def audit(on: Stage) -> None:
    """The map, the owners, the holds, their ends and the counters tell the same story, and the log has no gap."""
    await entries(on)
    key = on.keys.key
    fields = await on.redis.hgetall(key("holds"))
    records = {UUID(bytes=name): unpack_record(stored) for name, stored in fields.items() if len(name) == 16}
    live = {hold_id: hold for hold_id, hold in records.items() if hold.state == "h"}
    assert {UUID(bytes=each) for each in await on.redis.zrange(key("expiry"), 0, -1)} == live.keys()
    assert {UUID(bytes=each) for each in await on.redis.zrange(key("ended"), 0, -1)} == records.keys() - live.keys()
    counters = await on.redis.hgetall(key("counts"))
    if not counters:
        return
    seat_map, owners = await on.redis.get(key("map")) or b"", await on.redis.get(key("owners")) or b""
    assert len(owners) == 16 * len(seat_map)
    held_seats = {seat.value: hold_id for hold_id, hold in live.items() for seat in hold.seats}
    assert sum(len(hold.seats) for hold in live.values()) == len(held_seats)
    assert held_seats.keys() == {at for at, byte in enumerate(seat_map) if byte == ord("h")}
    for ordinal, hold_id in held_seats.items():
        assert owners[16 * ordinal : 16 * ordinal + 16] == hold_id.bytes
    assert hidden_runs(seat_map, counters.get(b"runs", b"")) == []
    places = Counter[int]()
    for hold in live.values():
        for quantity in hold.quantities:
            places[quantity.zone] += quantity.value
    for zone in on.event.zones:
        _, _, units_held, units_sold, units_blocked = struct.unpack(">IIIII", counters[b"%d" % zone.index])
        stretch = seat_map[zone.first : zone.first + zone.length]
        if zone.length:
            bytes_counted = (stretch.count(b"h"), stretch.count(b"s"), stretch.count(b"b"))
            assert (units_held, units_sold, units_blocked) == bytes_counted
        else:
            assert units_held == places[zone.index]


def hidden_runs(seat_map: bytes, digits: bytes) -> list[tuple[int, int]]:
    """Seats from which more free seats follow each other than the digit of their block says, and how many."""
    hidden = []
    for run in re.finditer(rb"\.+", seat_map):
        for block in range(run.start() // SEARCH_BLOCK_BYTES, (run.end() - 1) // SEARCH_BLOCK_BYTES + 1):
            first = max(run.start(), block * SEARCH_BLOCK_BYTES)
            if block < len(digits) and min(run.end() - first, 8) > int(digits[block : block + 1]):
                hidden.append((first, run.end() - first))
    return hidden


def _right_arguments(on: Stage) -> dict[str, bytes]:
    """A value for every argument of every script that names one."""
    event, zone = on.event, on.event.zones[0]
    return {
        "scope": on.keys.scope,
        "version": event.version.encode(),
        "rules": event.rules(max_backlog=0, retention_ms=RETENTION_MS),
        "meta": b"{}",
        "hold": uuid4().bytes,
        "fingerprint": b"wish",
        "user": uuid4().bytes,
        "address": b"",
        "cart": b"",
        "ttl_ms": b"600000",
        "seats": pack_pairs([next(iter(event.seats.values()))]) if event.seats else b"",
        "quantities": b"",
        "stretches": pack_stretches([(zone.index, zone.first, max(zone.first, zone.last))]),
        "count": b"2",
        "categories": b"",
        "near": b"0",
        "take": b"1",
        "retention_ms": b"%d" % RETENTION_MS,
        "limit": b"100",
        "reason": b"user_cancelled",
        "sale": b"sale-1",
        "key": b"extension-1",
        "extension_ms": b"60000",
        "total_ms": b"1200000",
        "checkout": b"",
        "holds": uuid4().bytes,
        "expected": event.version.encode(),
        "state": event.document.state.value.encode(),
        "opens_ms": b"%d" % event.opens_ms,
        "closes_ms": b"%d" % event.closes_ms,
        "capacities": b"",
        "length": b"%d" % len(event.map),
        "zones": event.zone_specs,
        "access": event.accessibility,
        "paired": event.paired_seats,
        "want_map": b"0",
        "offset": b"0",
        "block": b"..",
    }
