"""Which companion seats are kept, worked out from the letters of an event's seats.

Nothing says so by itself: a companion seat is kept while one of its wheelchair seats is taken, whoever took that has
not declined it, and its zone is not as full as the policy says.
"""

from collections.abc import Collection

from holdfast.engine.layout import FREE_COMPANION, CompiledEvent, SeatCategory
from holdfast.http.seat_lists import zones_of

_TAKEN = b"hs"


class KeptSeats:
    """The companion seats of an event by their place among its letters, as a map without separators has them."""

    def __init__(self, event: CompiledEvent) -> None:
        offsets = {seat.value: offset for offset, seat in enumerate(event.seats.values())}
        self._companions = {
            offsets[ordinal]: [(offsets[other.value], event.seat_at[other.value].seat_id) for other in others]
            for ordinal, others in event.paired.items()
            if event.seat_at[ordinal].category is SeatCategory.COMPANION
        }
        self._zones = [
            (range(zone.offset, zone.offset + zone.seats), compiled.document.capacity)
            for zone, compiled in zip(zones_of(event), event.zones, strict=True)
        ]
        self._percent = event.document.policy.companion_percent

    def among(self, letters: bytearray, declined: Collection[str]) -> frozenset[int]:
        """The places of the seats that are kept, given those of wheelchair seats whose companions were declined."""
        wanted = {
            companion
            for companion, wheelchairs in self._companions.items()
            if letters[companion] == FREE_COMPANION[0]
            and any(letters[place] in _TAKEN and seat_id not in declined for place, seat_id in wheelchairs)
        }
        kept: set[int] = set()
        for places, capacity in self._zones:
            here = {place for place in wanted if place in places}
            if here and 100 * _taken(letters[places.start : places.stop]) < self._percent * capacity:
                kept |= here
        return frozenset(kept)


def _taken(letters: bytearray) -> int:
    return letters.count(b"h") + letters.count(b"s")
