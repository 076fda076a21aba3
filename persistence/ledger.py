"""What the log says became of each hold, worked out without Postgres.

The persister turns the log into rows with statements that check as they go. The ledger turns the same log into the
rows that should be there now, by following one hold at a time. What the two agree on was applied once; where they do
not, the ledger knows what is missing.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from holdfast.engine.records import Block, LogEntry
from holdfast.persistence.fence import ShardControl
from holdfast.persistence.operations import Decline, End, Extend, Hold, Operation, Sell, checkout_status, ticket_id
from holdfast.persistence.pool import Connection
from holdfast.persistence.retained_log import read_operations, read_retained
from holdfast.persistence.sql import query

# The holds refused by Postgres, by the number of the log entry.
Refusals = Mapping[int, Set[UUID]]


class ExpectedTicket(msgspec.Struct, frozen=True):
    id: UUID
    zone: int
    ordinal: int | None


class ExpectedLine(msgspec.Struct, frozen=True):
    line: int
    zone: int
    ordinal: int | None
    quantity: int


class ExpectedHold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold as the log has it now.

    Without its `hold` entry, which may be trimmed, `made` is nothing, and the other fields say only what later entries
    do.
    """

    hold_id: UUID
    organization_id: UUID
    event_id: UUID
    made: Hold | None
    status: str = "active"
    ends_ms: int | None = None
    checkout: str | None = None
    checkout_status: str | None = None
    extension: str | None = None
    reason: str | None = None
    ended_ms: int | None = None
    declined: bool | None = None
    tickets: tuple[ExpectedTicket, ...] = ()
    last: LogEntry

    @property
    def lines(self) -> tuple[ExpectedLine, ...]:
        """The hold's rows, numbered as the persister numbers them."""
        if self.made is None:
            return ()
        record = self.made.record
        units: list[tuple[int, int | None, int]] = [(seat.zone, seat.value, 1) for seat in record.seats]
        units += [(wish.zone, None, wish.value) for wish in record.quantities]
        return tuple(ExpectedLine(line, *unit) for line, unit in enumerate(units))


class Ledger:
    """The holds of one shard's log, followed entry by entry, from the oldest one that is retained."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.seq = 0
        self.holds: dict[UUID, ExpectedHold] = {}
        self._refused: set[tuple[UUID, UUID]] = set()

    async def catch_up(self, redis: Redis, connection: Connection, control: ShardControl) -> list[Operation]:
        """Follow the log up to the mark of `control`; returns the operations that were new. Raises LogGap."""
        if self.first is None:
            after, operations = await read_retained(redis, control.keys, control.mark)
            self.first, self.seq = after + 1, after
        else:
            operations = await read_operations(redis, control.keys, self.seq, control.mark)
        stretch = (control.shard, control.epoch, self.seq, control.mark)
        dead = {row["seq"] for row in await connection.fetch(query("list_dead_letters"), *stretch)}
        refusals: dict[int, set[UUID]] = {}
        for row in await connection.fetch(query("list_refusals"), *stretch):
            refusals.setdefault(row["seq"], set()).add(row["hold_id"])
            if row["operation"] == "hold":
                # Also where the entry is a dead letter and cannot be followed: what comes later is about no row.
                self._refused.add((row["event_id"], row["hold_id"]))
        operations = [operation for operation in operations if operation.entry.seq not in dead]
        self.follow(operations, refusals, control.mark)
        return operations

    def follow(self, operations: Iterable[Operation], refusals: Refusals, to: int) -> None:
        """Go on with entries up to number `to`, in order, leaving out what Postgres has refused."""
        for operation in operations:
            refused = refusals.get(operation.entry.seq, frozenset())
            match operation:
                case Hold():
                    self._hold(operation, refused)
                case Extend():
                    self._extend(operation, refused)
                case End():
                    self._end(operation)
                case Decline():
                    self._decline(operation)
                case Sell() if not refused:
                    # A sale is all or nothing: one hold that stands in the way refuses the entry.
                    self._sell(operation)
        self.seq = max(self.seq, to)

    def _hold(self, hold: Hold, refused: Set[UUID]) -> None:
        if hold.hold_id in refused:
            return
        self.holds[hold.hold_id] = ExpectedHold(
            hold_id=hold.hold_id,
            organization_id=hold.entry.organization_id,
            event_id=hold.entry.event_id,
            made=hold,
            ends_ms=hold.record.created_ms + hold.record.ttl_ms,
            checkout=None,
            extension="",
            declined=False,
            last=hold.entry,
        )

    def _extend(self, extension: Extend, refused: Set[UUID]) -> None:
        for hold_id, ends_ms in zip(extension.entry.hold_ids, extension.ends_ms, strict=True):
            if hold_id not in refused:
                self._change(hold_id, extension.entry, ends_ms=ends_ms, extension=extension.key)
                if extension.checkout:
                    self._change(hold_id, extension.entry, checkout=extension.checkout, checkout_status="open")

    def _end(self, end: End) -> None:
        status = "expired" if end.entry.operation == "expire" else "cancelled"
        for hold_id in end.entry.hold_ids:
            self._change(hold_id, end.entry, status=status, reason=end.reason, ended_ms=end.entry.at_ms)
            if end.checkout:
                ended = checkout_status(end.reason)
                self._change(hold_id, end.entry, checkout=end.checkout, checkout_status=ended)

    def _decline(self, decline: Decline) -> None:
        for hold_id in decline.entry.hold_ids:
            self._change(hold_id, decline.entry, declined=True)

    def _sell(self, sale: Sell) -> None:
        for hold_id, origin in zip(sale.entry.hold_ids, sale.origins, strict=True):
            if origin == "x":
                # Whoever takes a seat anew has declined nothing.
                self._change(hold_id, sale.entry, declined=False)
        for hold_id, block in zip(sale.entry.hold_ids, sale.blocks, strict=True):
            self._change(
                hold_id,
                sale.entry,
                status="converted",
                reason=None,
                ended_ms=sale.entry.at_ms,
                checkout=sale.sale,
                checkout_status="completed",
                tickets=tuple(_tickets(hold_id, block)),
            )

    def _change(self, hold_id: UUID, entry: LogEntry, **changes: object) -> None:
        known = self.holds.get(hold_id)
        if (entry.event_id, hold_id) in self._refused or (known and known.event_id != entry.event_id):
            return
        known = known or ExpectedHold(
            hold_id=hold_id,
            organization_id=entry.organization_id,
            event_id=entry.event_id,
            made=None,
            last=entry,
        )
        self.holds[hold_id] = msgspec.structs.replace(known, last=entry, **changes)


def _tickets(hold_id: UUID, block: Block) -> Iterator[ExpectedTicket]:
    for seat in block.seats:
        yield ExpectedTicket(ticket_id(hold_id, *seat), seat.zone, seat.value)
    for wish in block.quantities:
        for unit in range(wish.value):
            yield ExpectedTicket(ticket_id(hold_id, wish.zone, unit), wish.zone, None)
