"""What is on sale."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.access import AccessMode


class Shop(msgspec.Struct, frozen=True):
    """What everybody knows of the event: its seats, the best first, and its zones with and without seats.

    Only of zones that are open to everybody; `on_map` has an empty place for every other seat of the map.
    """

    event_id: UUID
    on_map: tuple[str, ...]
    seats: tuple[str, ...]
    seated_zones: tuple[str, ...]
    open_zones: tuple[str, ...]

    @classmethod
    def of(cls, event_id: UUID, zones: Sequence[Mapping[str, Any]]) -> "Shop":
        """The shop of an event, given the zones of its layout as they are told."""
        public = [zone for zone in zones if _is_public(zone)]
        return cls(
            event_id=event_id,
            on_map=tuple(seat if _is_public(zone) else "" for zone in zones for seat in _seats(zone)),
            seats=tuple(seat for zone in public for seat in _seats(zone)),
            seated_zones=tuple(zone["zone_id"] for zone in public if _seats(zone)),
            open_zones=tuple(zone["zone_id"] for zone in public if not _seats(zone)),
        )


def _is_public(zone: Mapping[str, Any]) -> bool:
    return bool(zone["access_mode"] == AccessMode.PUBLIC)


def _seats(zone: Mapping[str, Any]) -> list[str]:
    return [seat["seat_id"] for seat in zone.get("seats", ())]
