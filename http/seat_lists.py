"""An event's seats as JSON, quickly: what never changes is encoded once, and only statuses are put in between."""

from collections import OrderedDict
from hashlib import blake2b
from uuid import UUID

import msgspec

from holdfast.engine.layout import SEPARATOR, CompiledEvent

# What a letter of the map stands for.
STATUSES = {
    b"."[0]: "available",
    b"w"[0]: "available",
    b"a"[0]: "available",
    b"h"[0]: "held",
    b"s"[0]: "sold",
    b"b"[0]: "blocked",
    b"c"[0]: "kept",
}

_WORDS = {letter: word.encode() for letter, word in STATUSES.items()}
_encode = msgspec.json.encode


class ZoneSeats(msgspec.Struct, frozen=True):
    """A zone's stretch of the map: `seats` letters from `offset` on."""

    zone_id: str
    offset: int
    seats: int


class ListedSeat(msgspec.Struct, frozen=True):
    """A seat and whether it can be had; one that is kept only by the buyer of its wheelchair seat."""

    seat_id: str
    zone_id: str
    row: str
    number: int
    category: str
    status: str


class SeatList(msgspec.Struct, frozen=True):
    """All seats of an event, in the order of its layout."""

    event_id: UUID
    config_version: str
    seats: tuple[ListedSeat, ...]


class SeatMap(msgspec.Struct, frozen=True):
    """The same in short: a letter for each seat, in the same order.

    `.` is available, `w` an available wheelchair seat, `a` an available companion seat, `h` held, `s` sold, `b`
    blocked, and `c` a companion seat that is kept for the buyer of its wheelchair seat.
    """

    event_id: UUID
    config_version: str
    zones: tuple[ZoneSeats, ...]
    map: str


def without_separators(seat_map: bytes) -> bytes:
    """A letter for each seat, from the map as scripts have it."""
    return seat_map.translate(None, SEPARATOR)


def zones_of(event: CompiledEvent) -> tuple[ZoneSeats, ...]:
    """Where each zone's seats are in a map without separators."""
    zones, offset = [], 0
    for zone in event.zones:
        seats = len(zone.document.seats)
        zones.append(ZoneSeats(zone.document.zone_id, offset, seats))
        offset += seats
    return tuple(zones)


def etag_of(event: CompiledEvent, letters: bytes, form: str) -> str:
    """The same on every front end and in every epoch, as long as no seat has changed."""
    digest = blake2b(letters, digest_size=12, key=event.version.encode(), person=form.encode())
    return f'"{digest.hexdigest()}"'


def encode_map(event: CompiledEvent, letters: bytes) -> bytes:
    """A SeatMap."""
    return b'{"event_id":"%b","config_version":"%b","zones":%b,"map":"%b"}' % (
        str(event.event_id).encode(),
        event.version.encode(),
        _encode(zones_of(event)),
        letters,
    )


class SeatLists:
    """Encodes lists of seats, and remembers what is the same in all lists of an event."""

    def __init__(self, max_events: int = 20) -> None:
        self._max_events = max_events
        self._templates: OrderedDict[str, list[bytes]] = OrderedDict()

    def encode(self, event: CompiledEvent, letters: bytes) -> bytes:
        """A SeatList. There is a letter for each seat."""
        parts = self._templates.get(event.version) or self._prepare(event)
        self._templates.move_to_end(event.version)
        # Between what is the same come the words that are not.
        parts[1::2] = map(_WORDS.__getitem__, letters)
        return b"".join(parts)

    def _prepare(self, event: CompiledEvent) -> list[bytes]:
        """The parts of the list before, between and after the statuses."""
        head = b'{"event_id":"%b","config_version":"%b","seats":[' % (
            str(event.event_id).encode(),
            event.version.encode(),
        )
        parts: list[bytes] = []
        before = head
        for zone in event.zones:
            zone_id = _encode(zone.document.zone_id)
            for seat in zone.document.seats:
                parts += (
                    before
                    + b'{"seat_id":%b,"zone_id":%b,"row":%b,"number":%d,"category":"%b","status":"'
                    % (_encode(seat.seat_id), zone_id, _encode(seat.row), seat.number, seat.category.encode()),
                    b"",
                )
                before = b'"},'
        parts.append(b'"}]}' if parts else head + b"]}")
        self._templates[event.version] = parts
        while len(self._templates) > self._max_events:
            self._templates.popitem(last=False)
        return parts
