"""Rebuilding a database from the retained log, by applying every entry again to an empty one.

The catalogue comes from the configured database, because the log has no layouts. So do its refusals: what it refused
of the log depended on its clock at the time, and a rebuilt database must not sell what the original has refused. All
of that is read at one moment, and the log is applied up to the marks of that moment, so the rebuilt database can be
compared with the original by its digest even while that goes on.

Without the original, the events must be loaded into the empty database first, and everything in the log is applied. The
rebuilt outbox is not marked as delivered: a receiver knows what it has had by the id of the message.
"""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import astuple
from redis.asyncio import Redis

from holdfast.engine.records import Pair, unpack_zone_specs
from holdfast.persistence import catalogue
from holdfast.persistence.apply import apply_operations, columns
from holdfast.persistence.batches import RawEntry, gather
from holdfast.persistence.digest import clock, digest
from holdfast.persistence.fence import ShardControl, frozen, read_controls
from holdfast.persistence.operations import Administer, Extend, Hold, Operation, Sell
from holdfast.persistence.pool import Connection
from holdfast.persistence.replay import Progress, ReplayError
from holdfast.persistence.retained_log import first_number, last_epoch, last_number, read_log
from holdfast.persistence.sql import query

BATCH_ENTRIES = 1_000


class Rebuild(msgspec.Struct, frozen=True, kw_only=True):
    """What was rebuilt. `original_digest` is empty when the original could not be read."""

    events: int
    entries: int
    unreadable: int
    refused: int
    digest: str
    original_digest: str = ""

    @property
    def equal(self) -> bool:
        return self.original_digest in ("", self.digest)


class _Decisions(msgspec.Struct, frozen=True):
    """What the original did not apply of a shard's log: refused holds by entry, and dead letters."""

    refusals: dict[int, set[UUID]]
    dead: set[int]


async def replay_into(
    redis: Redis,
    original: Connection | None,
    target: Connection,
    shards: int,
    *,
    progress: Progress = lambda _: None,
) -> Rebuild:
    """Fill a freshly migrated database from the log. Raises ReplayError, and then has applied nothing or a part."""
    await _check_empty(target, with_events=original is None)
    async with AsyncExitStack() as stack:
        if original is not None:
            await stack.enter_async_context(frozen(original))
        controls = await _controls(redis, original, shards)
        for control in controls:
            await _check_whole(redis, control)
        events = await _copy_catalogue(original, target, shards) if original is not None else 0
        entries = unreadable = refused = 0
        for control in controls:
            decisions = await _decisions(original, target, control)
            counts = await _apply_shard(redis, target, control, decisions)
            entries, unreadable, refused = entries + counts[0], unreadable + counts[1], refused + counts[2]
            progress(f"shard {control.shard}: {counts[0]} entries")
        at = max(await clock(target), await clock(original)) if original is not None else await clock(target)
        return Rebuild(
            events=events,
            entries=entries,
            unreadable=unreadable,
            refused=refused,
            digest=await digest(target, at),
            original_digest=await digest(original, at) if original is not None else "",
        )


async def _check_empty(target: Connection, *, with_events: bool) -> None:
    found = await target.fetchrow(query("count_contents"))
    if found["holds"] or found["shards"]:
        raise ReplayError("The database to replay into is not empty.")
    if with_events and not found["events"]:
        raise ReplayError(
            "The configured database cannot be read, so its events must be loaded into the empty one before the replay."
        )
    if not with_events and found["events"]:
        raise ReplayError("The database to replay into has events already.")


async def _controls(redis: Redis, original: Connection | None, shards: int) -> list[ShardControl]:
    """How far to go: to the marks of the original, or to the end of the log."""
    if original is not None:
        return list((await read_controls(original, range(shards))).values())
    ends = [ShardControl(shard, await last_epoch(redis, shard), "redis", 0) for shard in range(shards)]
    return [msgspec.structs.replace(each, mark=await last_number(redis, each.keys)) for each in ends]


async def _check_whole(redis: Redis, control: ShardControl) -> None:
    if control.mode == "unopened":
        return
    if control.mode != "redis" or await redis.get(control.keys.key("base")) != b"0":
        raise ReplayError(
            f"Shard {control.shard} was also served without its log, which therefore does not tell all of its story."
        )
    first = await first_number(redis, control.keys)
    if control.mark and first != 1:
        oldest = f"begins with entry {control.epoch}-{first}" if first else "is gone"
        raise ReplayError(f"The log of shard {control.shard} {oldest}: what came before can no longer be replayed.")


async def _copy_catalogue(original: Connection, target: Connection, shards: int) -> int:
    for row in await original.fetch(query("list_organizations")):
        await target.execute(query("copy_organization"), *row)
    events = await catalogue.list_events(original, None)
    for each in events:
        event = await catalogue.load_event(original, each.organization_id, each.event_id)
        assert event is not None, "an event cannot vanish from a snapshot"
        await catalogue.save_event(target, event, shards)
    return len(events)


async def _decisions(original: Connection | None, target: Connection, control: ShardControl) -> _Decisions:
    """What the original refused, copied, so that the rebuilt database says the same to those who ask again."""
    found = _Decisions({}, set())
    if original is None:
        return found
    stretch = (control.shard, control.epoch, 0, control.mark)
    rejections = await original.fetch(query("list_rejections"), *stretch)
    for row in rejections:
        found.refusals.setdefault(row["seq"], set()).add(row["hold_id"])
    letters = await original.fetch(query("list_dead_letter_rows"), *stretch)
    found.dead.update(row["seq"] for row in letters)
    await _copy(target, "copy_rejections", rejections)
    await _copy(target, "copy_dead_letters", letters)
    return found


async def _copy(target: Connection, statement: str, rows: Sequence[Any]) -> None:
    if rows:
        await target.execute(query(statement), *columns([tuple(row) for row in rows]))


async def _apply_shard(
    redis: Redis, target: Connection, control: ShardControl, decisions: _Decisions
) -> tuple[int, int, int]:
    """Apply a shard's log up to its mark; returns how many entries there were, were unreadable, and were refused."""
    await target.execute(query("open_shards"), [control.shard], control.epoch)
    entries = unreadable = refused = 0
    while entries < control.mark:
        to = min(entries + BATCH_ENTRIES, control.mark)
        batch = [entry async for entry in read_log(redis, control.keys, entries, to)]
        if len(batch) < to - entries:
            break
        counts = await _apply_batch(target, control, entries, batch, decisions)
        entries, unreadable, refused = to, unreadable + counts[0], refused + counts[1]
    if entries < control.mark:
        raise ReplayError(f"The log of shard {control.shard} ends at {control.epoch}-{entries}, before its mark.")
    return entries, unreadable, refused


async def _apply_batch(
    target: Connection, control: ShardControl, after: int, entries: Sequence[RawEntry], decisions: _Decisions
) -> tuple[int, int]:
    found = gather(control.shard, control.epoch, after, entries)
    if found.gap:
        raise ReplayError(f"The log of shard {control.shard} is not whole: {found.gap}.")
    async with target.transaction():
        rejections = await apply_operations(target, list(_accepted(found.operations, decisions)))
        place = (control.shard, control.epoch)
        letters = [(*place, letter.seq, letter.fields, letter.error) for letter in found.dead_letters]
        lost = [rejection for letter in found.dead_letters for rejection in letter.rejections]
        await _copy(target, "insert_dead_letters", letters)
        await _copy(target, "insert_rejections", [(*place, *astuple(each)) for each in (*rejections, *lost)])
        row = (control.shard, control.epoch, after, found.last_seq, found.last_at_ms)
        moved = await target.fetchval(query("advance_marks"), *columns([row]))
        if not moved:
            raise ReplayError("Somebody else writes to the database that is replayed into.")
    return len(found.dead_letters), len(rejections)


def _accepted(operations: Iterable[Operation], decisions: _Decisions) -> Iterable[Operation]:
    """The operations that the original has applied, as it has applied them."""
    for operation in operations:
        entry = operation.entry
        refused = decisions.refusals.get(entry.seq, set())
        if entry.seq in decisions.dead or (refused and isinstance(operation, Hold | Sell)):
            continue
        match operation:
            case Extend() if refused:
                kept = [
                    (each, end)
                    for each, end in zip(entry.hold_ids, operation.ends_ms, strict=True)
                    if each not in refused
                ]
                if kept:
                    yield msgspec.structs.replace(
                        operation,
                        entry=msgspec.structs.replace(entry, hold_ids=tuple(each for each, _ in kept)),
                        ends_ms=tuple(end for _, end in kept),
                    )
            case Administer() if entry.operation == "open":
                # The catalogue has the capacities of today; this entry has those the event opened with.
                specs = unpack_zone_specs(entry.body.partition(b"\n")[2])
                capacities = tuple(Pair(zone, capacity) for zone, (capacity, _, _) in enumerate(specs))
                yield msgspec.structs.replace(operation, capacities=capacities)
            case _:
                yield operation
