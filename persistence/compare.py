"""Redis and Postgres side by side: what one says of an event and the other does not.

The two are compared at a common place of the log. What entries between the two readings have changed is left out, and
so is what the two may differ in for a while by design:

- a hold past its end: Redis and Postgres end it at their own times, and until then it keeps nobody from the seat;
- a hold that Redis has ended and Postgres's clock does not yet let go;
- a hold that Postgres has just refused, until it is given back in Redis.

Each of these has a grace of a minute. After that it is a difference like any other.
"""

from collections.abc import Iterable, Iterator, Set
from uuid import UUID

import msgspec

from holdfast.engine.layout import SEPARATOR, CompiledEvent
from holdfast.engine.records import HoldRecord, Pair
from holdfast.persistence.operations import Administer, End, Hold, Operation, Sell
from holdfast.persistence.postgres_event import HoldLine, PostgresEvent, RejectedHold
from holdfast.persistence.redis_event import RedisEvent

GRACE_MS = 60_000

_STATUSES = {ord("h"): "held", ord("s"): "sold", ord("b"): "blocked"}
_STATES = {"h": "live", "s": "sold", "r": "released", "x": "expired"}


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be. `subject` names the seat, hold, zone or entry."""

    event_id: UUID | None
    subject: str
    problem: str

    def __str__(self) -> str:
        where = f"event {self.event_id}, " if self.event_id else ""
        return f"{where}{self.subject}: {self.problem}"


class Moving(msgspec.Struct, frozen=True):
    """What changed between the two readings, and so cannot be compared; `everything` when an event was configured."""

    holds: Set[UUID] = frozenset()
    ordinals: Set[int] = frozenset()
    zones: Set[int] = frozenset()
    everything: bool = False

    @property
    def nothing(self) -> bool:
        return not (self.holds or self.ordinals or self.zones or self.everything)


def what_moved(operations: Iterable[Operation]) -> Moving:
    """What operations change of their event."""
    holds: set[UUID] = set()
    ordinals: set[int] = set()
    zones: set[int] = set()
    everything = False
    for operation in operations:
        holds.update(operation.entry.hold_ids)
        match operation:
            case Hold():
                pairs = [(operation.record.seats, operation.record.quantities)]
            case End() | Sell():
                pairs = [(block.seats, block.quantities) for block in operation.blocks]
            case Administer(block=block) if block is not None:
                pairs = [(block.seats, block.quantities)]
            case Administer():
                pairs, everything = [], True
            case _:
                pairs = []
        for seats, quantities in pairs:
            ordinals.update(seat.value for seat in seats)
            zones.update(pair.zone for pair in (*seats, *quantities))
    return Moving(holds, ordinals, zones, everything)


def compare(event: CompiledEvent, redis: RedisEvent, postgres: PostgresEvent, moving: Moving) -> list[Finding]:
    """Everything that Redis and Postgres say differently of an event."""
    comparison = _Comparison(event, redis, postgres, moving)
    return [Finding(event.event_id, subject, problem) for subject, problem in comparison.run()]


def compare_closed(event_id: UUID, postgres: PostgresEvent) -> list[Finding]:
    """An event that Redis does not have open must have nothing held: it could not have been closed."""
    late = postgres.now_ms - GRACE_MS
    return [
        Finding(event_id, f"hold {hold_id}", "is active in Postgres, but its event is not open in Redis")
        for hold_id, lines in postgres.active.items()
        if lines[0].ends_ms > late
    ]


class _Comparison:
    def __init__(self, event: CompiledEvent, redis: RedisEvent, postgres: PostgresEvent, moving: Moving) -> None:
        self._event = event
        self._redis = redis
        self._postgres = postgres
        self._moving = moving
        self._now_ms = max(redis.counts.now_ms, postgres.now_ms)
        self._live = redis.live
        self._active = postgres.active
        self._excused = {
            hold_id for hold_id in self._live.keys() | self._active.keys() if self._may_differ_for_now(hold_id)
        }
        self._excused_ordinals = {seat.value for each in self._excused for seat in self._seats_in_redis(each)} | {
            line.ordinal for each in self._excused for line in self._active.get(each, ()) if line.ordinal is not None
        }

    def run(self) -> Iterator[tuple[str, str]]:
        yield from self._compare_configuration()
        yield from self._compare_zones()
        yield from self._compare_seats()
        yield from self._compare_wheelchairs()
        yield from self._compare_holds()

    def _may_differ_for_now(self, hold_id: UUID) -> bool:
        record, lines = self._redis.holds.get(hold_id), self._active.get(hold_id)
        rejection = self._postgres.rejections.get(hold_id)
        if hold_id in self._live and lines is None and rejection and rejection.age_s * 1000 < GRACE_MS:
            return True
        ends_ms = lines[0].ends_ms if lines else self._redis.ends.get(hold_id, 0)
        if lines is None:
            return 0 < ends_ms <= self._now_ms
        ended_in_redis = hold_id not in self._live and record is not None and record.state == "x"
        overdue = ends_ms <= self._now_ms
        return (overdue or ended_in_redis) and ends_ms + GRACE_MS > self._now_ms

    def _seats_in_redis(self, hold_id: UUID) -> tuple[Pair, ...]:
        record = self._redis.holds.get(hold_id)
        return record.seats if record else ()

    def _compare_configuration(self) -> Iterator[tuple[str, str]]:
        here, there = self._redis.counts, self._postgres
        if here.version != there.version:
            yield "configuration", f"version {here.version} in Redis, {there.version} in Postgres"
        elif here.state != there.state:
            yield "configuration", f"state {here.state} in Redis, {there.state} in Postgres"

    def _compare_zones(self) -> Iterator[tuple[str, str]]:
        here = {zone.zone: zone for zone in self._redis.counts.zones}
        there = {zone.zone: zone for zone in self._postgres.zones}
        for zone in sorted(here.keys() | there.keys()):
            if zone in self._moving.zones:
                continue
            if zone not in here or zone not in there:
                where = "Redis" if zone in here else "Postgres"
                yield self._zone_name(zone), f"is only in {where}"
                continue
            mine = here[zone]._replace(held=here[zone].held - self._excused_units_in_redis(zone))
            yours = there[zone]._replace(held=there[zone].held - self._excused_units_in_postgres(zone))
            for field in ("capacity", "seats", "held", "sold", "blocked"):
                if getattr(mine, field) != getattr(yours, field):
                    counted = f"{getattr(mine, field)} in Redis, {getattr(yours, field)} in Postgres"
                    yield self._zone_name(zone), f"{field} is {counted}"

    def _compare_seats(self) -> Iterator[tuple[str, str]]:
        seat_map, rows = self._redis.map, self._postgres.seats
        if len(seat_map) != len(self._event.map):
            yield "map", f"has {len(seat_map)} bytes in Redis, the event's layout {len(self._event.map)}"
            return
        if any(byte == SEPARATOR[0] != seat_map[at] for at, byte in enumerate(self._event.map)):
            yield "map", "a separator between rows is missing in Redis"
        for ordinal, seat in self._event.seat_at.items():
            if ordinal in self._moving.ordinals or ordinal in self._excused_ordinals:
                continue
            subject, row = f"seat {seat.seat_id}", rows.get(ordinal)
            if row is None:
                yield subject, "is missing in Postgres"
                continue
            is_free = seat_map[ordinal : ordinal + 1] == seat.category.free_letter
            status = "available" if is_free else _STATUSES.get(seat_map[ordinal], f"byte {seat_map[ordinal]}")
            if status != row.status:
                yield subject, f"{status} in Redis, {row.status} in Postgres"
            elif status in ("held", "sold") and self._redis.owner(ordinal) != row.hold_id:
                yield subject, f"of hold {self._redis.owner(ordinal)} in Redis, of {row.hold_id} in Postgres"

    def _compare_wheelchairs(self) -> Iterator[tuple[str, str]]:
        """Who took the wheelchair seats that both have as taken, which decides for whom companion seats are kept."""
        if self._redis.counts.access != self._event.accessibility:
            yield "configuration", "the rules for wheelchair seats are others in Redis"
        for ordinal, taker in self._postgres.takers.items():
            byte = self._redis.map[ordinal : ordinal + 1]
            if ordinal in self._moving.ordinals or ordinal in self._excused_ordinals or byte not in (b"h", b"s"):
                continue
            here = self._redis.counts.takers.get(ordinal)
            subject = f"seat {self._event.seat_at[ordinal].seat_id}"
            if here is None or here.user_id != taker.user_id:
                yield subject, "was taken by another user in Redis"
            elif here.declined != taker.declined and self._redis.owner(ordinal) not in self._moving.holds:
                yield subject, f"its companion seats are {'' if here.declined else 'not '}declined in Redis"

    def _compare_holds(self) -> Iterator[tuple[str, str]]:
        for hold_id in self._redis.unreadable:
            yield f"hold {hold_id}", "its record in Redis cannot be read"
        for hold_id in self._redis.ends.keys() - self._live.keys() - set(self._redis.unreadable):
            yield f"hold {hold_id}", "has an end in Redis but is not live there"
        for hold_id in sorted((self._live.keys() | self._active.keys()) - self._excused - set(self._redis.unreadable)):
            if hold_id in self._moving.holds:
                continue
            for problem in self._hold_problems(hold_id):
                yield f"hold {hold_id}", problem

    def _hold_problems(self, hold_id: UUID) -> Iterator[str]:
        record, lines = self._live.get(hold_id), self._active.get(hold_id)
        if lines is None:
            rejection = self._postgres.rejections.get(hold_id)
            yield f"is live in Redis and not active in Postgres{_why(rejection)}"
        elif record is None:
            stored = self._redis.holds.get(hold_id)
            how = _STATES.get(stored.state, stored.state) if stored else "unknown"
            overdue_s = (self._now_ms - lines[0].ends_ms) / 1000
            since = f", and overdue for {overdue_s:.0f} s" if overdue_s > 0 else ""
            yield f"is active in Postgres{since}, and {how} in Redis"
        else:
            if self._redis.ends.get(hold_id) != lines[0].ends_ms:
                yield f"ends at {self._redis.ends.get(hold_id)} in Redis, at {lines[0].ends_ms} in Postgres"
            elif lines[0].ends_ms + GRACE_MS <= self._now_ms:
                yield f"is overdue for {(self._now_ms - lines[0].ends_ms) / 1000:.0f} s, and nothing ends it"
            if record.user_id != lines[0].user_id:
                yield "belongs to another user in Redis"
            if _units_of_record(record) != _units_of_lines(lines):
                yield "has other seats or places in Redis"

    def _zone_name(self, zone: int) -> str:
        zones = self._event.zones
        return f"zone {zones[zone].document.zone_id}" if zone < len(zones) else f"zone {zone}"

    def _excused_units_in_redis(self, zone: int) -> int:
        records = [self._live[each] for each in self._excused if each in self._live]
        return sum(units for record in records for where, _, units in _units_of_record(record) if where == zone)

    def _excused_units_in_postgres(self, zone: int) -> int:
        lines = [self._active[each] for each in self._excused if each in self._active]
        return sum(units for each in lines for where, _, units in _units_of_lines(each) if where == zone)


def _why(rejection: RejectedHold | None) -> str:
    if rejection is None:
        return ""
    if rejection.dead_letter:
        return f": it is dead-lettered (entry {rejection.dead_letter}) for {rejection.age_s:.0f} s"
    return f", which refused it ({rejection.reason}) {rejection.age_s:.0f} s ago"


def _units_of_record(record: HoldRecord) -> set[tuple[int, int | None, int]]:
    seats: set[tuple[int, int | None, int]] = {(seat.zone, seat.value, 1) for seat in record.seats}
    return seats | {(wish.zone, None, wish.value) for wish in record.quantities}


def _units_of_lines(lines: Iterable[HoldLine]) -> set[tuple[int, int | None, int]]:
    return {(line.zone, line.ordinal, line.quantity) for line in lines}
