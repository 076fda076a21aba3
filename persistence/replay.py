"""Replaying a stretch of the log onto the database that has it already.

Every hold that the stretch names is brought to where the whole log, up to the mark, says it is: rows that are missing
come back, ends that were missed are made up for, and then seats and counters are made to say what the rows say. What
is right stays untouched, so a second run finds nothing. A sale is never undone, and a hold that has ended never comes
back to life.

Administrative entries are not replayed: blocked places are counted and not listed, so nothing tells a second
application from the first. To rebuild everything, replay into an empty database.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.persistence.compare import Finding
from holdfast.persistence.differences import find_differences, mend
from holdfast.persistence.fence import ShardControl, enter_shard, read_controls
from holdfast.persistence.ledger import ExpectedHold, Ledger
from holdfast.persistence.operations import Administer, Operation
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query

# The mark is locked while a chunk is looked at, and acknowledgements of the shard wait for that.
CHUNK_HOLDS = 1_000

Progress = Callable[[str], None]


class ReplayError(Exception):
    """A replay that cannot be done; the text is one sentence for the operator."""


class Place(msgspec.Struct, frozen=True):
    """A place in the log as an operator names it."""

    epoch: int
    seq: int

    @classmethod
    def read(cls, text: str) -> "Place | None":
        """EPOCH-SEQ as it is, `-` and `+` as nothing: the beginning or the end."""
        if text in ("-", "+"):
            return None
        epoch, dash, seq = text.partition("-")
        if not (dash and epoch.isdigit() and seq.isdigit()):
            raise ValueError(f"{text!r} is not EPOCH-SEQ, - or +")
        return cls(int(epoch), int(seq))


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What was replayed: how much of the log, what differed, what of that stays as it is."""

    entries: int
    administrative: int
    holds: int
    changes: tuple[Finding, ...]
    left: tuple[Finding, ...]
    applied: bool


class _RollBack(Exception):
    """Ends a transaction that was only for looking."""


async def replay(
    redis: Redis,
    connection: Connection,
    shards: Iterable[int],
    *,
    first: Place | None = None,
    last: Place | None = None,
    event_id: UUID | None = None,
    dry_run: bool,
    progress: Progress = lambda _: None,
) -> Replay:
    """Bring what a stretch of the log names to where the log says it is; a dry run only tells what would change."""
    entries = administrative = holds = 0
    changes: list[Finding] = []
    left: list[Finding] = []
    for shard, control in (await read_controls(connection, shards)).items():
        if control.mark == 0:
            continue
        _check(control, first, last)
        ledger = Ledger()
        operations = [
            operation
            for operation in await ledger.catch_up(redis, connection, control)
            if _is_within(operation, first, last) and event_id in (None, operation.entry.event_id)
        ]
        named = list(dict.fromkeys(hold_id for each in operations for hold_id in each.entry.hold_ids))
        entries += len(operations)
        administrative += sum(isinstance(operation, Administer) for operation in operations)
        holds += len(named)
        progress(f"shard {shard}: {len(operations)} entries, {len(named)} holds")
        for chunk in _chunks(named):
            found = await _replay_chunk(redis, connection, ledger, control, chunk, dry_run=dry_run)
            changes += found[0]
            left += found[1]
    return Replay(
        entries=entries,
        administrative=administrative,
        holds=holds,
        changes=tuple(changes),
        left=tuple(left),
        applied=not dry_run,
    )


async def _replay_chunk(
    redis: Redis,
    connection: Connection,
    ledger: Ledger,
    before: ShardControl,
    chunk: Sequence[UUID],
    *,
    dry_run: bool,
) -> tuple[list[Finding], list[Finding]]:
    """Look at some holds and put them right, unless this is a dry run; returns what changes, and what stays."""
    changes: list[Finding] = []
    left: list[Finding] = []
    try:
        async with connection.transaction():
            control = await enter_shard(connection, before.shard)
            if (control.epoch, control.mode) != (before.epoch, "redis"):
                raise ReplayError(f"Shard {before.shard} is no longer served from Redis in epoch {before.epoch}.")
            await ledger.catch_up(redis, connection, control)
            expected = [ledger.holds[hold_id] for hold_id in chunk if hold_id in ledger.holds]
            differences = await find_differences(connection, expected)
            left = await mend(connection, differences)
            changes = [each.finding for each in differences if each.finding not in left]
            changes += await _settle(connection, expected)
            if dry_run:
                raise _RollBack
    except _RollBack:
        pass
    return changes, left


async def _settle(connection: Connection, holds: Sequence[ExpectedHold]) -> list[Finding]:
    """Make seats and counters say what the rows of the holds say; returns what they said otherwise."""
    places: dict[tuple[UUID, int], None] = {}
    for hold in holds:
        ordinals = [line.ordinal for line in hold.lines] + [ticket.ordinal for ticket in hold.tickets]
        places.update({(hold.event_id, ordinal): None for ordinal in ordinals if ordinal is not None})
    events = list({hold.event_id for hold in holds})
    at = list(places)
    seats = await connection.fetch(query("settle_seats"), [place[0] for place in at], [place[1] for place in at])
    zones = await connection.fetch(query("settle_zones"), events)
    found = [
        Finding(row["event_id"], f"seat {row['seat_id']}", f"is {row['before']} and should be {row['after']}")
        if row["before"] != row["after"]
        else Finding(row["event_id"], f"seat {row['seat_id']}", "names another hold, ticket or end than its rows")
        for row in seats
    ]
    return found + [Finding(row["event_id"], f"zone {row['zone_id']}", _recount(row)) for row in zones]


def _recount(row: Any) -> str:
    counted = (f"{name} is {row[f'{name}_before']} and should be {row[name]}" for name in ("held", "sold", "blocked"))
    return ", ".join(text for text, name in zip(counted, ("held", "sold", "blocked"), strict=True) if _moved(row, name))


def _moved(row: Any, name: str) -> bool:
    return bool(row[name] != row[f"{name}_before"])


def _check(control: ShardControl, first: Place | None, last: Place | None) -> None:
    if control.mode != "redis":
        raise ReplayError(f"Shard {control.shard} is not served from Redis, so its log must not be replayed.")
    for place in (first, last):
        if place is not None and place.epoch != control.epoch:
            raise ReplayError(f"Shard {control.shard} is in epoch {control.epoch}, not in {place.epoch}.")


def _is_within(operation: Operation, first: Place | None, last: Place | None) -> bool:
    seq = operation.entry.seq
    return (first is None or seq >= first.seq) and (last is None or seq <= last.seq)


def _chunks(holds: Iterable[UUID]) -> Iterator[list[UUID]]:
    remaining = iter(holds)
    while chunk := list(islice(remaining, CHUNK_HOLDS)):
        yield chunk
