"""Whether the books balance: within Postgres, between the log and Postgres, and between Redis and Postgres.

Everything is read at moments that belong together, so a system under traffic is as clean as one at rest. What changes
faster than it can be compared is left out and said to be.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.engine.keys import EventKeys
from holdfast.engine.layout import CompiledEvent
from holdfast.persistence.catalogue import EventSummary, list_events, load_event
from holdfast.persistence.compare import Finding, Moving, compare, compare_closed, what_moved
from holdfast.persistence.differences import find_differences
from holdfast.persistence.fence import ShardControl, frozen, read_controls
from holdfast.persistence.ledger import Ledger
from holdfast.persistence.pool import Connection
from holdfast.persistence.postgres_event import PostgresEvent, read_postgres_event
from holdfast.persistence.redis_event import RedisEvent, read_redis_event
from holdfast.persistence.retained_log import LogGap, read_operations
from holdfast.persistence.sql import query
from holdfast.persistence.status import PATIENCE_S, await_mark

# Each returns an event, a subject and a problem per row.
CHECKS = ("verify_doubles", "verify_seats", "verify_holds", "verify_zones", "verify_numbers")

_ATTEMPTS = 5
_CHUNK_HOLDS = 1_000

Progress = Callable[[str], None]


class Verification(msgspec.Struct, frozen=True):
    """What differs, and what could not be looked at or is only worth knowing.

    `dead_lettered` counts the holds that have no row because their log entry could not be applied. They were refused
    to those who asked for them, so they are no difference, unless Redis goes on having them.
    """

    findings: tuple[Finding, ...]
    notices: tuple[str, ...]
    events: int
    entries: int
    dead_lettered: int = 0

    @property
    def clean(self) -> bool:
        return not self.findings


class Readings(msgspec.Struct, frozen=True):
    """An event in both, and what moved between the two readings."""

    redis: RedisEvent
    postgres: PostgresEvent
    moving: Moving
    control: ShardControl


async def verify(
    redis: Redis,
    connection: Connection,
    shards: int,
    *,
    event_id: UUID | None = None,
    patience_s: float = PATIENCE_S,
    progress: Progress = lambda _: None,
) -> Verification:
    """Check one event, or all of them and everything that is not about an event."""
    verifier = _Verifier(redis, connection, patience_s)
    events = await list_events(connection, None, event_id)
    progress("checking the rows of Postgres")
    await verifier.check_rows(event_id)
    controls = await read_controls(connection, range(shards))
    for shard, control in controls.items():
        if control.mode != "redis":
            verifier.notices.append(f"shard {shard}: in mode {control.mode}, not compared with Redis")
        elif event_id is None or any(event.shard == shard for event in events):
            progress(f"checking the log of shard {shard}")
            await verifier.check_log(control, event_id)
    in_redis = {each.shard for each in controls.values() if each.mode == "redis"}
    for event in [each for each in events if each.shard in in_redis]:
        progress(f"comparing event {event.event_id}")
        await verifier.check_event(event)
    if event_id is None:
        await verifier.check_unknown_events({event.event_id for event in events}, shards)
    return Verification(
        findings=tuple(verifier.findings),
        notices=tuple(verifier.notices),
        events=len(events),
        entries=verifier.entries,
        dead_lettered=verifier.dead_lettered,
    )


async def read_both(redis: Redis, connection: Connection, event: EventSummary, *, patience_s: float) -> Readings | None:
    """An event in both at places of the log as near as possible, or nothing if it is not in Postgres. Raises LogGap."""
    control = (await read_controls(connection, [event.shard]))[event.shard]
    here = await read_redis_event(redis, EventKeys(control.keys, event.organization_id, event.event_id))
    await await_mark(connection, control, here.counts.seq, patience_s)
    async with frozen(connection):
        control = (await read_controls(connection, [event.shard]))[event.shard]
        there = await read_postgres_event(connection, event.event_id)
    if there is None:
        return None
    low, high = sorted((here.counts.seq, control.mark))
    between = await read_operations(redis, control.keys, low, high)
    moving = what_moved(each for each in between if each.entry.event_id == event.event_id)
    return Readings(here, there, moving, control)


async def check_rows(connection: Connection, event_id: UUID | None) -> list[Finding]:
    """What Postgres alone is inconsistent in, at one moment: of one event, or of all."""
    async with frozen(connection):
        return [Finding(**row) for check in CHECKS for row in await connection.fetch(query(check), event_id)]


class _Verifier:
    def __init__(self, redis: Redis, connection: Connection, patience_s: float) -> None:
        self._redis = redis
        self._connection = connection
        self._patience_s = patience_s
        self.findings: list[Finding] = []
        self.notices: list[str] = []
        self.entries = 0
        self.dead_lettered = 0

    async def check_rows(self, event_id: UUID | None) -> None:
        """What Postgres alone must be consistent in, and what an operator should know besides."""
        self.findings += await check_rows(self._connection, event_id)
        for row in await self._connection.fetch(query("list_dead_lettered_holds"), event_id):
            self.dead_lettered += 1
            self.notices.append(
                f"event {row['event_id']}, hold {row['hold_id']}: is dead-lettered and has no row, because entry "
                f"{row['entry']} could not be applied: {row['error']}"
            )
        leftovers = await self._connection.fetch(query("count_leftovers"))
        for row in leftovers:
            if row["dead_letters"]:
                self.notices.append(f"shard {row['shard']}: {row['dead_letters']} log entries are dead letters")
            if row["uncompensated"]:
                self.notices.append(
                    f"shard {row['shard']}: {row['uncompensated']} refusals are not given back in Redis"
                )

    async def check_log(self, control: ShardControl, event_id: UUID | None) -> None:
        """Every entry that is retained and below the mark was applied, once."""
        ledger = Ledger()
        try:
            async with frozen(self._connection):
                control = (await read_controls(self._connection, [control.shard]))[control.shard]
                operations = await ledger.catch_up(self._redis, self._connection, control)
                holds = [hold for hold in ledger.holds.values() if event_id in (None, hold.event_id)]
                for at in range(0, len(holds), _CHUNK_HOLDS):
                    differences = await find_differences(self._connection, holds[at : at + _CHUNK_HOLDS])
                    self.findings += [difference.finding for difference in differences]
        except LogGap as error:
            self.findings.append(Finding(None, f"shard {control.shard}", str(error)))
            return
        self.entries += len(operations)

    async def check_event(self, event: EventSummary) -> None:
        """Redis and Postgres say the same of an event."""
        compiled = await load_event(self._connection, event.organization_id, event.event_id)
        if compiled is None:
            return
        readings = None
        try:
            for _ in range(_ATTEMPTS):
                readings = await read_both(self._redis, self._connection, event, patience_s=self._patience_s)
                if readings is None or readings.moving.nothing:
                    break
        except LogGap as error:
            self.findings.append(Finding(event.event_id, f"shard {event.shard}", str(error)))
            return
        if readings is not None:
            self._compare(compiled, readings)

    def _compare(self, event: CompiledEvent, readings: Readings) -> None:
        moving, behind = readings.moving, readings.redis.counts.seq - readings.control.mark
        if moving.everything:
            self.notices.append(f"event {event.event_id}: busy, not compared with Redis")
            return
        if not moving.nothing:
            why = f"the persister is {behind} entries behind" if behind > 0 else "busy"
            self.notices.append(
                f"event {event.event_id}: {why}, so {len(moving.holds)} holds and {len(moving.ordinals)} seats that "
                "were changing were not compared with Redis"
            )
        if readings.redis.counts.is_open:
            self.findings += compare(event, readings.redis, readings.postgres, moving)
        else:
            self.findings += compare_closed(event.event_id, readings.postgres)

    async def check_unknown_events(self, known: set[UUID], shards: int) -> None:
        """Redis serves nothing that Postgres has never heard of."""
        for control in (await read_controls(self._connection, range(shards))).values():
            if control.mode != "redis":
                continue
            scopes: Any = await self._redis.smembers(control.keys.key("events"))
            for scope in scopes:
                event_id = UUID(bytes=scope[16:])
                if event_id not in known and not await self._exists(event_id):
                    self.findings.append(Finding(event_id, "event", "is open in Redis and not in Postgres"))

    async def _exists(self, event_id: UUID) -> bool:
        return await self._connection.fetchval(query("find_event_organization"), event_id) is not None
