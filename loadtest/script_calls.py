"""The events and calls of the script benchmark."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from uuid import UUID, uuid4

import msgspec

from holdfast.engine.audit import Caller
from holdfast.engine.keys import EventKeys, ShardKeys, shard_of
from holdfast.engine.layout import (
    CompiledEvent,
    EventDocument,
    EventState,
    SeatCategory,
    SeatDocument,
    ZoneDocument,
    ZoneType,
)
from holdfast.engine.policy import Policy
from holdfast.engine.records import pack_pairs, pack_stretches, pack_zone
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.lua import Script, scripts

SHARDS = 1
SEATS_PER_ROW = 50
RETENTION_MS = 3_600_000
TTL_MS = 600_000
RECORD_BYTES = 75
POLICY = Policy(rate_limit_seats=10, max_seats_per_booking=10)
# Everything that a policy can say of seats, users and times.
ALL_RULES = Policy(
    rate_limit_seats=10,
    max_seats_per_booking=10,
    max_holds_per_user=10,
    orphan_avoidance_strict=True,
    orphan_audit_enabled=True,
    min_hold_ttl_minutes=2,
)

# What a front end sends along for the audit.
META = Caller(
    address="203.0.113.77",
    user_agent="Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/142.0.0.0 Safari/537.36",
    request_id="01JD2N7Q4ZV0Q8W3M5R6T7Y8ZA",
).meta()

Words = list[bytes | str | int]


def arena(seats: int, policy: Policy = POLICY) -> EventDocument:
    """An event on sale with one zone of that many seats in rows of fifty."""
    spots = (divmod(place, SEATS_PER_ROW) for place in range(seats))
    places = tuple(SeatDocument(f"{row}-{number}", str(row), number) for row, number in spots)
    zone = ZoneDocument("arena", ZoneType.RESERVED_SEATING, "Arena", seats, places)
    return EventDocument(uuid4(), "Benchmark", (zone,), state=EventState.LIVE, policy=policy)


def mixed_arena(seats: int, policy: Policy = POLICY) -> EventDocument:
    """The same with an aisle on either side of every row and one in its middle, and every fifth row behind pillars."""
    plain = arena(seats, policy)
    places = tuple(msgspec.structs.replace(seat, category=_category(seat)) for seat in plain.zones[0].seats)
    return msgspec.structs.replace(plain, zones=(msgspec.structs.replace(plain.zones[0], seats=places),))


def _category(seat: SeatDocument) -> SeatCategory:
    if int(seat.row) % 5 == 4:
        return SeatCategory.RESTRICTED_VIEW
    middle = SEATS_PER_ROW // 2
    at_aisle = seat.number in (0, middle - 1, middle, SEATS_PER_ROW - 1)
    return SeatCategory.AISLE if at_aisle else SeatCategory.STANDARD


def ordinal_of(place: int) -> int:
    """The ordinal of the arena's n-th seat: a separator follows every row."""
    return place + place // SEATS_PER_ROW


def event_keys(event: CompiledEvent, epoch: int = FIRST_EPOCH) -> EventKeys:
    shard = ShardKeys(shard_of(event.event_id, SHARDS), epoch)
    return EventKeys(shard, event.organization_id, event.event_id)


def words(script: Script, keys: EventKeys, **arguments: bytes | str | int) -> Words:
    """A script's call as redis-py wants it, with its arguments by name."""
    names = [keys.key(key.name) for key in script.keys]
    return ["EVALSHA", script.sha, len(names), *names, *(arguments[each.name] for each in script.arguments)]


def event_arguments(event: CompiledEvent) -> dict[str, bytes | str | int]:
    """The first arguments of hold_seats, which are the same for every hold of an event."""
    return {
        "scope": event.organization_id.bytes + event.event_id.bytes,
        "version": event.version,
        "rules": event.rules(max_backlog=0, retention_ms=RETENTION_MS),
    }


def hold_arguments(ordinal: int) -> dict[str, bytes | str | int]:
    """The other arguments of hold_seats, for one new user's hold of one seat."""
    return {
        "meta": META,
        "hold": uuid4().bytes,
        "fingerprint": "kX9_a2",
        "user": uuid4().bytes,
        "address": "",
        "cart": UUID(bytes=os.urandom(16)).hex[:22],
        "ttl_ms": TTL_MS,
        "seats": pack_pairs([(0, ordinal)]),
        "quantities": b"",
    }


def hold_calls(event: CompiledEvent, first: int = 0) -> Iterator[Words]:
    """Holds of one seat after the other."""
    script, keys = scripts()["hold_seats"], event_keys(event)
    for place in count(first):
        yield words(script, keys, **event_arguments(event), **hold_arguments(ordinal_of(place)))


def group_calls(event: CompiledEvent, groups: Iterable[Sequence[int]]) -> Iterator[Words]:
    """Holds of several seats each, by their ordinals."""
    script, keys = scripts()["hold_seats"], event_keys(event)
    for ordinals in groups:
        wish = {"seats": pack_pairs([(0, ordinal) for ordinal in ordinals])}
        yield words(script, keys, **event_arguments(event) | hold_arguments(0) | wish)


def write_calls(script: Script, event: CompiledEvent, epoch: int) -> Iterator[Words]:
    """The writes of the same holds, in an epoch of their own so that they number their log entries themselves."""
    keys = event_keys(event, epoch)
    seats = len(event.seats)
    for place in count():
        yield words(
            script,
            keys,
            **event_arguments(event),
            **hold_arguments(ordinal_of(place)),
            epoch=epoch,
            last_seq=place,
            zone=0,
            counters=pack_zone(seats, seats, held=place),
        )


def ready_calls(script: Script, event: CompiledEvent, epoch: int) -> Iterator[Words]:
    """The same writes with every value made beforehand."""
    keys = event_keys(event, epoch)
    seats = len(event.seats)
    for place in count():
        hold = uuid4().bytes
        yield words(
            script,
            keys,
            stream_id=f"{epoch}-{place + 1}",
            head=os.urandom(40),
            meta=META,
            hold=hold,
            record=os.urandom(RECORD_BYTES),
            seq=place + 1,
            user_field=b"u" + os.urandom(16),
            ends_ms=1_800_000_000_000 + place,
            ordinal=ordinal_of(place),
            offset=ordinal_of(place) * 16,
            zone=0,
            counters=pack_zone(seats, seats, held=place + 1),
        )


def allocate_calls(event: CompiledEvent, seats: int = 4, *categories: SeatCategory) -> Iterator[Words]:
    """Requests for the best seats together, four of any category unless told otherwise."""
    script, keys, zone = scripts()["allocate_seats"], event_keys(event), event.zones[0]
    stretches = pack_stretches([(0, zone.first, zone.last)])
    letters = b"".join(each.letter for each in categories)
    while True:
        arguments = event_arguments(event) | hold_arguments(0)
        yield words(script, keys, **arguments, stretches=stretches, count=seats, categories=letters)
