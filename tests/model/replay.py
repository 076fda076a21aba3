"""Rebuilds an event from its log alone, the way a persister would, and complains about what cannot have happened."""

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import (
    Block,
    LogEntry,
    Pair,
    ZoneCounts,
    unpack_blocks,
    unpack_ends,
    unpack_pairs,
    unpack_record,
    unpack_zone_specs,
)


class Replay:
    """The map, the counters and the live holds of one event, as far as the log has been read."""

    def __init__(self, event: CompiledEvent) -> None:
        self.seq = 0
        self.version = ""
        self.state = ""
        self.live: dict[UUID, int] = {}
        self._event = event
        self._map = bytearray()
        self._capacity: dict[int, int] = {}
        self._held: Counter[int] = Counter()
        self._sold: Counter[int] = Counter()
        self._blocked: Counter[int] = Counter()

    @property
    def map(self) -> bytes:
        return bytes(self._map)

    def zones(self) -> tuple[ZoneCounts, ...]:
        return tuple(
            ZoneCounts(
                zone.index,
                self._capacity[zone.index],
                sum(zone.first <= ordinal <= zone.last for ordinal in self._event.seat_at),
                self._held[zone.index],
                self._sold[zone.index],
                self._blocked[zone.index],
            )
            for zone in self._event.zones
        )

    def read(self, entries: Iterable[LogEntry]) -> None:
        """Take in the next entries. They are numbered without a gap, and each finds the seats as it needs them."""
        for entry in entries:
            assert entry.seq == self.seq + 1, f"entry {entry.seq} follows entry {self.seq}"
            self.seq = entry.seq
            getattr(self, f"_{entry.operation}")(entry)

    def _open(self, entry: LogEntry) -> None:
        config, _, zones = entry.body.partition(b"\n")
        self.version, self.state, _, _, length = config.decode().split(" ")
        assert int(length) == len(self._event.map)
        for index, (capacity, first, size) in enumerate(unpack_zone_specs(zones)):
            self._capacity[index] = capacity
            self._blocked[index] = self._event.map[first : first + size].count(b"b")
        self._map = bytearray(self._event.map)

    def _state(self, entry: LogEntry) -> None:
        config, _, capacities = entry.body.partition(b"\n")
        self.version, self.state, _, _ = config.decode().split(" ")
        self._capacity.update({pair.zone: pair.value for pair in unpack_pairs(capacities)})

    def _hold(self, entry: LogEntry) -> None:
        record = unpack_record(entry.body)
        (hold_id,) = entry.hold_ids
        assert hold_id not in self.live
        assert (record.state, record.seq, record.created_ms) == ("h", entry.seq, entry.at_ms)
        self._write(record.seats, ".", "h")
        self._held.update(_units(Block(record.seats, record.quantities)))
        self.live[hold_id] = record.created_ms + record.ttl_ms

    def _extend(self, entry: LogEntry) -> None:
        ends = unpack_ends(entry.body[: 8 * len(entry.hold_ids)])
        for hold_id, end in zip(entry.hold_ids, ends, strict=True):
            assert end >= self.live[hold_id]
            self.live[hold_id] = end

    def _accessible(self, entry: LogEntry) -> None:
        (wheelchairs, kept), _ = unpack_blocks(entry.body, 2)
        assert entry.hold_ids[0] in self.live
        assert {chr(self._map[seat.value]) for seat in wheelchairs.seats} == {"h"}
        assert {chr(self._map[seat.value]) for seat in kept.seats} <= {"a"}

    def _decline(self, entry: LogEntry) -> None:
        (block,), _ = unpack_blocks(entry.body, 1)
        assert {chr(self._map[seat.value]) for seat in block.seats} <= {"h", "s"}

    def _release(self, entry: LogEntry) -> None:
        reason, _, checkout = self._end(entry).partition(b"\n")
        assert reason in (b"user_cancelled", b"payment_failed", b"admin_override", b"not_persisted")
        assert not checkout or checkout.startswith(b"c")

    def _expire(self, entry: LogEntry) -> None:
        assert self._end(entry) == b"ttl_expired"

    def _end(self, entry: LogEntry) -> bytes:
        blocks, reason = unpack_blocks(entry.body, len(entry.hold_ids))
        for hold_id, block in zip(entry.hold_ids, blocks, strict=True):
            if block.seats or block.quantities:
                del self.live[hold_id]
            # A checkout that ends also takes from late payments what had expired, and frees nothing by it.
            assert hold_id not in self.live
            self._write(block.seats, "h", ".")
            self._held.subtract(_units(block))
        return reason

    def _sell(self, entry: LogEntry) -> None:
        blocks, rest = unpack_blocks(entry.body, len(entry.hold_ids))
        origins, _, _ = rest.decode().partition("\n")
        for hold_id, block, origin in zip(entry.hold_ids, blocks, origins, strict=True):
            if origin == "h":
                del self.live[hold_id]
                self._held.subtract(_units(block))
            assert hold_id not in self.live
            self._write(block.seats, "h" if origin == "h" else ".", "s")
            self._sold.update(_units(block))

    def _block(self, entry: LogEntry) -> None:
        (block,), _ = unpack_blocks(entry.body, 1)
        self._write(block.seats, ".", "b")
        self._blocked.update(_units(block))

    def _unblock(self, entry: LogEntry) -> None:
        (block,), _ = unpack_blocks(entry.body, 1)
        self._write(block.seats, "b", ".")
        self._blocked.subtract(_units(block))

    def _write(self, seats: Sequence[Pair], before: str, after: str) -> None:
        for seat in seats:
            found, free = chr(self._map[seat.value]), self._event.seat_at[seat.value].category.free_letter.decode()
            assert found == (free if before == "." else before), (
                f"entry {self.seq} turns seat {seat} from {before!r} to {after!r}, but it is {found!r}"
            )
            self._map[seat.value] = ord(free if after == "." else after)


def _units(block: Block) -> Counter[int]:
    units = Counter(seat.zone for seat in block.seats)
    for zone, quantity in block.quantities:
        units[zone] += quantity
    return units
