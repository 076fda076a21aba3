"""How the system is doing: how far each shard's log is persisted, what each event counts in Redis and in Postgres."""

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.engine.keys import EventKeys
from holdfast.engine.records import ZoneCounts
from holdfast.persistence.catalogue import EventSummary, list_events
from holdfast.persistence.fence import ShardControl, frozen, read_controls
from holdfast.persistence.hot_counts import HotCounts, HotEvent, ask_hot_counts
from holdfast.persistence.pool import Connection
from holdfast.persistence.redis_event import RedisCounts, read_redis_counts
from holdfast.persistence.retained_log import is_of, read_log
from holdfast.persistence.sql import query

# How long to wait for the persister to come to where Redis was read.
PATIENCE_S = 2.0

_POLL_S = 0.02
_ATTEMPTS = 3


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A shard. The lag is what is not persisted yet: how many entries, and how old the first of them is."""

    shard: int
    mode: str
    epoch: int
    open: bool
    log_entries: int
    last_seq: int
    mark: int
    lag_entries: int
    lag_seconds: float
    dead_letters: int
    uncompensated: int


class Counts(msgspec.Struct, frozen=True):
    """What is counted of an event over all its zones."""

    capacity: int
    held: int
    sold: int
    blocked: int


class HotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the hot cache of a front end knows to be taken of an event's seats: only what it saw happen, and no places.

    `agreement` is 'agrees' if that is no more than Redis has at a common mark, else 'differs'; 'behind' when there was
    no common mark, and 'not following' when it follows no log of the event's shard, and so says nothing.
    """

    front_end: str
    held: int
    sold: int
    blocked: int
    agreement: str


class EventStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An event.

    `agreement` is 'agrees', 'differs', 'behind' when there was no common mark, 'not open' in Redis, or 'not in Redis'
    when its shard is not served from there. `hot` has every front end that answered, of an event that Redis serves.
    """

    event_id: UUID
    organization_id: UUID
    name: str
    state: str
    shard: int
    redis: Counts | None
    postgres: Counts
    agreement: str
    hot: tuple[HotStatus, ...] = ()


class SystemStatus(msgspec.Struct, frozen=True):
    shards: tuple[ShardStatus, ...]
    events: tuple[EventStatus, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing asks for an operator: every shard is served, and no event differs."""
        served = all(shard.mode == "redis" and shard.open and not shard.uncompensated for shard in self.shards)
        agreed = all(event.agreement in ("agrees", "not open", "not in Redis") for event in self.events)
        return served and agreed and not any(hot.agreement == "differs" for event in self.events for hot in event.hot)


async def read_status(
    redis: Redis, connection: Connection, shards: int, *, patience_s: float = PATIENCE_S
) -> SystemStatus:
    """Look at every shard and every event."""
    hot = await ask_hot_counts(connection)
    events = [
        await event_status(redis, connection, event, hot, patience_s=patience_s)
        for event in await list_events(connection, None)
    ]
    return SystemStatus(await shard_statuses(redis, connection, range(shards)), tuple(events))


async def shard_statuses(redis: Redis, connection: Connection, shards: Iterable[int]) -> tuple[ShardStatus, ...]:
    """Look at some shards."""
    controls = await read_controls(connection, shards)
    letters = {row["shard"]: row for row in await connection.fetch(query("count_leftovers"))}
    return tuple([await shard_status(redis, control, letters.get(control.shard)) for control in controls.values()])


async def shard_status(redis: Redis, control: ShardControl, leftovers: Any = None) -> ShardStatus:
    """A shard whose control is known; without the row of its leftovers there are none."""
    keys = control.keys
    if control.mode != "redis":
        return ShardStatus(
            shard=control.shard,
            mode=control.mode,
            epoch=control.epoch,
            open=False,
            log_entries=0,
            last_seq=0,
            mark=0,
            lag_entries=0,
            lag_seconds=0.0,
            dead_letters=leftovers["dead_letters"] if leftovers else 0,
            uncompensated=0,
        )
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.exists(keys.key("open"))
        pipeline.xlen(keys.key("log"))
        pipeline.get(keys.key("seq"))
        pipeline.xrange(keys.key("log"), min=f"({control.epoch}-{control.mark}", count=1)
        pipeline.time()
        is_open, entries, seq, waiting, (seconds, microseconds) = await pipeline.execute()
    now_ms, last_seq = seconds * 1000 + microseconds // 1000, int(seq or 0)
    waiting_ms = int.from_bytes(waiting[0][1].get(b"head", b"")[:8]) if waiting else now_ms
    return ShardStatus(
        shard=control.shard,
        mode=control.mode,
        epoch=control.epoch,
        open=bool(is_open),
        log_entries=entries,
        last_seq=last_seq,
        mark=control.mark,
        lag_entries=max(0, last_seq - control.mark),
        lag_seconds=max(0, now_ms - waiting_ms) / 1000,
        dead_letters=leftovers["dead_letters"] if leftovers else 0,
        uncompensated=leftovers["uncompensated"] if leftovers else 0,
    )


async def event_status(
    redis: Redis,
    connection: Connection,
    event: EventSummary,
    hot: Iterable[HotCounts] = (),
    *,
    patience_s: float = PATIENCE_S,
) -> EventStatus:
    """Look at one event, and compare it with what front ends have said of it."""
    agreement, here, there = await _compare_counts(redis, connection, event, patience_s)
    for _ in range(_ATTEMPTS - 1):
        if agreement != "behind":
            break
        agreement, here, there = await _compare_counts(redis, connection, event, patience_s)
    heard: tuple[HotStatus, ...] = ()
    if here and here.is_open:
        control = (await read_controls(connection, [event.shard]))[event.shard]
        heard = tuple([await _compare_hot(redis, control, event, here, each) for each in hot])
    return EventStatus(
        event_id=event.event_id,
        organization_id=event.organization_id,
        name=event.name,
        state=event.state,
        shard=event.shard,
        redis=_sum(here.zones) if here else None,
        postgres=_sum(there),
        agreement=agreement,
        hot=heard,
    )


async def _compare_hot(
    redis: Redis, control: ShardControl, event: EventSummary, here: RedisCounts, hot: HotCounts
) -> HotStatus:
    """Whether a hot cache calls more seats taken than Redis does. It may well know of fewer: it saw no more happen."""
    known = hot.events.get(event.event_id, HotEvent(event.event_id, 0, 0, 0))
    place = hot.places.get((control.shard, control.epoch))
    if place is None:
        agreement = "not following"
    elif not await _is_quiet(redis, control, event.event_id, here.seq, place):
        agreement = "behind"
    else:
        seated = _sum(tuple(zone for zone in here.zones if zone.seats))
        more = known.held > seated.held or known.sold > seated.sold or known.blocked > seated.blocked
        agreement = "differs" if more else "agrees"
    return HotStatus(
        front_end=hot.front_end, held=known.held, sold=known.sold, blocked=known.blocked, agreement=agreement
    )


async def _compare_counts(
    redis: Redis, connection: Connection, event: EventSummary, patience_s: float
) -> tuple[str, RedisCounts | None, tuple[ZoneCounts, ...]]:
    """Read an event's counters in both, at a common mark if there is one."""
    control = (await read_controls(connection, [event.shard]))[event.shard]
    if control.mode != "redis":
        rows = await connection.fetch(query("read_zone_counts"), event.event_id, event.organization_id)
        return "not in Redis", None, tuple(ZoneCounts(**row) for row in rows)
    counts = await read_redis_counts(redis, EventKeys(control.keys, event.organization_id, event.event_id))
    if counts.is_open:
        await await_mark(connection, control, counts.seq, patience_s)
    async with frozen(connection):
        control = (await read_controls(connection, [event.shard]))[event.shard]
        rows = await connection.fetch(query("read_zone_counts"), event.event_id, event.organization_id)
    zones = tuple(ZoneCounts(**row) for row in rows)
    if not counts.is_open:
        return "not open", None, zones
    if not await _is_quiet(redis, control, event.event_id, counts.seq, control.mark):
        return "behind", counts, zones
    return "agrees" if counts.zones == zones else "differs", counts, zones


async def await_mark(connection: Connection, control: ShardControl, seq: int, patience_s: float) -> ShardControl:
    """Wait until a shard is persisted up to a number, if that does not take too long; returns how far it is."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience_s
    while control.mark < seq and clock() < deadline:
        await asyncio.sleep(_POLL_S)
        control = (await read_controls(connection, [control.shard]))[control.shard]
    return control


async def _is_quiet(redis: Redis, control: ShardControl, event_id: UUID, one: int, other: int) -> bool:
    """Whether nothing of the event lies between two places in the log, where two layers were read."""
    low, high = sorted((one, other))
    entries = [entry async for entry in read_log(redis, control.keys, low, high)]
    return len(entries) == high - low and not any(is_of(entry, event_id) for entry in entries)


def _sum(zones: tuple[ZoneCounts, ...]) -> Counts:
    return Counts(
        capacity=sum(zone.capacity for zone in zones),
        held=sum(zone.held for zone in zones),
        sold=sum(zone.sold for zone in zones),
        blocked=sum(zone.blocked for zone in zones),
    )
