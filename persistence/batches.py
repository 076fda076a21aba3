"""What the persister applies at once: a contiguous slice of each shard's log."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from struct import error as struct_error

import msgspec

from holdfast.engine.records import unpack_entry, unpack_whose
from holdfast.persistence.apply import Rejection
from holdfast.persistence.operations import Hold, Operation, count_expired, read_operation, split_phases

# The status by which those who wait for a dead letter are refused.
UNAPPLICABLE = "invalid_request"

RawEntry = tuple[bytes, Mapping[bytes, bytes]]


class DeadLetter(msgspec.Struct, frozen=True):
    """A log entry that cannot be applied, with its fields as JSON and what is wrong with it.

    What it did to holds is rejected, as far as it can be read.
    """

    seq: int
    fields: str
    error: str
    rejections: tuple[Rejection, ...] = ()


class Slice(msgspec.Struct, frozen=True):
    """A shard's entries after `first_seq` up to `last_seq`; `gap` says where the log stops being whole."""

    shard: int
    epoch: int
    first_seq: int
    last_seq: int
    last_at_ms: int
    operations: tuple[Operation, ...]
    dead_letters: tuple[DeadLetter, ...] = ()
    gap: str = ""

    def part(self, first_seq: int, last_seq: int) -> "Slice":
        """Only the entries after one number up to another."""
        operations = self.operations[self._after(first_seq) : self._after(last_seq)]
        return msgspec.structs.replace(
            self,
            first_seq=first_seq,
            last_seq=last_seq,
            last_at_ms=operations[-1].entry.at_ms if operations else self.last_at_ms,
            operations=operations,
            dead_letters=tuple(letter for letter in self.dead_letters if first_seq < letter.seq <= last_seq),
        )

    def _after(self, seq: int) -> int:
        """Where the operations after a number begin."""
        return bisect_right(self.operations, seq, key=lambda operation: operation.entry.seq)


class Batch(msgspec.Struct, frozen=True):
    """One slice per shard that has something waiting."""

    slices: tuple[Slice, ...]

    @property
    def length(self) -> int:
        return sum(each.last_seq - each.first_seq for each in self.slices)

    @property
    def operations(self) -> list[Operation]:
        """The operations of all slices, each shard's in its order."""
        return [operation for each in self.slices for operation in each.operations]

    @property
    def separate_holds(self) -> list[Hold]:
        """Its operations if they are holds that have nothing to do with each other and everything could be read.

        None of them has left a seat alone, of which the audit is told separately.
        """
        operations = self.operations
        if any(each.dead_letters for each in self.slices) or any(each.entry.orphans for each in operations):
            return []
        holds = [operation for operation in operations if isinstance(operation, Hold)]
        separate = len(holds) == len(operations) and len(list(split_phases(holds))) == 1
        return holds if separate else []

    @property
    def ends(self) -> dict[int, tuple[int, int]]:
        """Where the mark of each shard is when the batch is applied: its epoch and number."""
        return {each.shard: (each.epoch, each.last_seq) for each in self.slices}

    @property
    def expired_holds(self) -> int:
        """How many holds it expires."""
        return count_expired(self.operations)

    def singles(self) -> Iterator["Batch"]:
        """The same entries, one per batch."""
        for each in self.slices:
            for seq in range(each.first_seq, each.last_seq):
                yield Batch((each.part(seq, seq + 1),))

    def halves(self) -> list["Batch"]:
        """The same entries in two batches, the earlier ones of every shard in the first. Single entries stay one."""
        middles = [(each, (each.first_seq + each.last_seq + 1) // 2) for each in self.slices]
        later = tuple(each.part(middle, each.last_seq) for each, middle in middles if middle < each.last_seq)
        if not later:
            return [self]
        return [Batch(tuple(each.part(each.first_seq, middle) for each, middle in middles)), Batch(later)]

    def as_dead_letters(self, error: str) -> "Batch":
        """The same entries as dead letters. Their times, which may be what cannot be applied, are not counted."""
        slices = []
        for each in self.slices:
            letters = tuple(
                DeadLetter(operation.entry.seq, _operation_json(operation), error, _rejections(operation))
                for operation in each.operations
            )
            slices.append(
                msgspec.structs.replace(each, last_at_ms=0, operations=(), dead_letters=(*each.dead_letters, *letters))
            )
        return Batch(tuple(slices))


def gather(shard: int, epoch: int, mark: int, entries: Sequence[RawEntry]) -> Slice:
    """Read entries that should follow the mark. What cannot be read is a dead letter; at a gap the slice ends."""
    operations: list[Operation] = []
    letters: list[DeadLetter] = []
    seq, at_ms, gap = mark, 0, ""
    for stream_id, fields in entries:
        number = int(stream_id.partition(b"-")[2])
        if number != seq + 1:
            gap = f"after entry {epoch}-{seq} its log goes on with {epoch}-{number}"
            break
        try:
            operation = read_operation(unpack_entry(stream_id, fields))
            operations.append(operation)
            at_ms = operation.entry.at_ms
        except (ValueError, KeyError, struct_error) as error:
            letters.append(
                DeadLetter(number, fields_json(fields), str(error) or repr(error), _salvaged(number, fields))
            )
        seq = number
    return Slice(shard, epoch, mark, seq, at_ms, tuple(operations), tuple(letters), gap)


def _salvaged(seq: int, fields: Mapping[bytes, bytes]) -> tuple[Rejection, ...]:
    """The holds that an unreadable entry has made, if it says at least which: Redis has them, and must give them up."""
    try:
        organization_id, event_id, hold_ids = unpack_whose(fields)
    except (ValueError, KeyError, struct_error):
        return ()
    if fields.get(b"op") != b"hold":
        return ()
    return tuple(Rejection(seq, organization_id, event_id, hold_id, "hold", UNAPPLICABLE) for hold_id in hold_ids)


def _rejections(operation: Operation) -> tuple[Rejection, ...]:
    entry = operation.entry
    return tuple(
        Rejection(entry.seq, entry.organization_id, entry.event_id, hold_id, entry.operation, UNAPPLICABLE)
        for hold_id in entry.hold_ids
    )


def fields_json(fields: Mapping[bytes, bytes]) -> str:
    """Bytes as JSON has them: base64."""
    return msgspec.json.encode({name.decode(errors="replace"): value for name, value in fields.items()}).decode()


def _operation_json(operation: Operation) -> str:
    entry = operation.entry
    return msgspec.json.encode(
        {
            "op": entry.operation,
            "at_ms": entry.at_ms,
            "event_id": entry.event_id,
            "holds": entry.hold_ids,
            "body": entry.body,
        }
    ).decode()
