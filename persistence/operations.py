"""Log entries as the operations they are, and how a batch of them is split for Postgres."""

import struct
from collections.abc import Iterable, Iterator
from uuid import UUID, uuid5

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.records import (
    Block,
    HoldRecord,
    LogEntry,
    Pair,
    unpack_blocks,
    unpack_ends,
    unpack_pairs,
    unpack_record,
)

_END_BYTES = 8
_CALLER = msgspec.json.Decoder(Actor)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What every operation has: its place in the log, its time, its event, and who caused it."""

    entry: LogEntry
    caller: Actor

    @property
    def touches(self) -> set[object]:
        """The holds and seats it changes; two operations that share none may be applied in any order."""
        return set(self.entry.hold_ids)


class Hold(Operation, frozen=True):
    """A new hold."""

    hold_id: UUID
    record: HoldRecord

    @property
    def touches(self) -> set[object]:
        return {self.hold_id, *_seats(self.entry, self.record.seats)}


class End(Operation, frozen=True):
    """Holds released or expired; released with the checkout that took them, if it has a name."""

    blocks: tuple[Block, ...]
    reason: str
    checkout: str

    @property
    def touches(self) -> set[object]:
        return {*self.entry.hold_ids, *(seat for block in self.blocks for seat in _seats(self.entry, block.seats))}


class Extend(Operation, frozen=True):
    """Holds that end later, for a checkout if it has a name."""

    ends_ms: tuple[int, ...]
    checkout: str
    key: str


class Sell(Operation, frozen=True):
    """Holds converted to tickets; `origins` says which were live ('h') and which had expired ('x')."""

    blocks: tuple[Block, ...]
    origins: str
    sale: str

    @property
    def touches(self) -> set[object]:
        return {*self.entry.hold_ids, *(seat for block in self.blocks for seat in _seats(self.entry, block.seats))}


class Accessible(Operation, frozen=True):
    """What the audit wants to know of a hold with wheelchair seats: these, and the companion seats kept with them."""

    wheelchairs: tuple[Pair, ...]
    kept: tuple[Pair, ...]

    @property
    def touches(self) -> set[object]:
        """Nothing: it comes after its hold, and may be told together with it."""
        return set()


class Decline(Operation, frozen=True):
    """The buyer of these wheelchair seats does not want their companion seats."""

    wheelchairs: tuple[Pair, ...]


class Administer(Operation, frozen=True):
    """Seats or places blocked or unblocked, or an event opened, changed or closed. Never applied beside another."""

    block: Block | None = None
    config: tuple[str, ...] = ()
    capacities: tuple[Pair, ...] = ()


Phase = list[Operation]


def read_operation(entry: LogEntry) -> Operation:
    """The operation of a log entry. Raises ValueError for one that no script has written."""
    try:
        return _READERS[entry.operation](entry, read_caller(entry.meta))
    except (KeyError, IndexError, struct.error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ValueError(f"{entry.operation!r} cannot be read: {error!r}") from error


def read_caller(meta: bytes) -> Actor:
    """Who caused an operation. Raises msgspec.DecodeError for what no front end has sent."""
    return _CALLER.decode(meta) if meta else Actor()


def split_phases(operations: Iterable[Operation]) -> Iterator[Phase]:
    """Cut operations into runs in which nothing is changed twice, so that one statement may apply many of them."""
    phase: Phase = []
    touched: set[object] = set()
    for operation in operations:
        alone = isinstance(operation, Administer)
        touches = operation.touches
        if phase and (alone or isinstance(phase[-1], Administer) or not touched.isdisjoint(touches)):
            yield phase
            phase, touched = [], set()
        phase.append(operation)
        touched |= touches
    if phase:
        yield phase


def count_expired(operations: Iterable[Operation]) -> int:
    """How many holds they expire."""
    return sum(len(each.entry.hold_ids) for each in operations if each.entry.operation == "expire")


def checkout_status(reason: str) -> str:
    """What a checkout becomes when its holds are released for this reason."""
    return "failed" if reason == "payment_failed" else "cancelled"


def ticket_id(hold_id: UUID, zone: int, place: int) -> UUID:
    """The ticket of one unit of a hold: derived, so that applying a sale again makes the same tickets."""
    return uuid5(hold_id, f"{zone}/{place}")


def _seats(entry: LogEntry, seats: Iterable[Pair]) -> Iterator[tuple[UUID, int]]:
    return ((entry.event_id, seat.value) for seat in seats)


def _hold(entry: LogEntry, caller: Actor) -> Hold:
    (hold_id,) = entry.hold_ids
    return Hold(entry=entry, caller=caller, hold_id=hold_id, record=unpack_record(entry.body))


def _end(entry: LogEntry, caller: Actor) -> End:
    blocks, rest = unpack_blocks(entry.body, len(entry.hold_ids))
    reason, _, checkout = rest.decode().partition("\n")
    return End(entry=entry, caller=caller, blocks=blocks, reason=reason, checkout=checkout)


def _extend(entry: LogEntry, caller: Actor) -> Extend:
    cut = _END_BYTES * len(entry.hold_ids)
    checkout, _, key = entry.body[cut:].decode().partition("\n")
    ends_ms = unpack_ends(entry.body[:cut])
    if len(ends_ms) != len(entry.hold_ids):
        raise ValueError("an extension has not one end for each hold")
    return Extend(entry=entry, caller=caller, ends_ms=ends_ms, checkout=checkout, key=key)


def _sell(entry: LogEntry, caller: Actor) -> Sell:
    blocks, rest = unpack_blocks(entry.body, len(entry.hold_ids))
    origins, _, sale = rest.decode().partition("\n")
    if len(origins) != len(entry.hold_ids):
        raise ValueError("a sale has not one origin for each hold")
    return Sell(entry=entry, caller=caller, blocks=blocks, origins=origins, sale=sale)


def _accessible(entry: LogEntry, caller: Actor) -> Accessible:
    (wheelchairs, kept), _ = unpack_blocks(entry.body, 2)
    return Accessible(entry=entry, caller=caller, wheelchairs=wheelchairs.seats, kept=kept.seats)


def _decline(entry: LogEntry, caller: Actor) -> Decline:
    (block,), _ = unpack_blocks(entry.body, 1)
    return Decline(entry=entry, caller=caller, wheelchairs=block.seats)


def _block(entry: LogEntry, caller: Actor) -> Administer:
    (block,), _ = unpack_blocks(entry.body, 1)
    return Administer(entry=entry, caller=caller, block=block)


def _configure(entry: LogEntry, caller: Actor) -> Administer:
    config, _, capacities = entry.body.partition(b"\n")
    return Administer(
        entry=entry,
        caller=caller,
        config=tuple(config.decode().split()),
        capacities=unpack_pairs(capacities) if entry.operation == "state" else (),
    )


_READERS = {
    "hold": _hold,
    "release": _end,
    "expire": _end,
    "extend": _extend,
    "sell": _sell,
    "accessible": _accessible,
    "decline": _decline,
    "block": _block,
    "unblock": _block,
    "open": _configure,
    "state": _configure,
    "close": _configure,
}
