"""What a document may not say although each of its values is fine. Every complaint names its place in the document."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from holdfast.engine.access import AccessMode

if TYPE_CHECKING:
    from holdfast.engine.layout import EventDocument, SeatDocument, SeatGroupDocument, ZoneDocument
    from holdfast.engine.policy import Policy


# What scripts can count in milliseconds since 1970.
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(5000, 1, 1, tzinfo=UTC)

# What Postgres can keep as the capacity of an event.
_CAPACITY_MAX = 2_147_483_647


class LayoutError(ValueError):
    """A document that contradicts itself; the text names the place."""


def check_document(document: "EventDocument") -> None:
    """Raise LayoutError at the first place where an event contradicts itself, or its policy."""
    check_zones(document.zones)
    check_groups(document.zones, document.seat_groups)
    known = {seat.seat_id for zone in document.zones for seat in zone.seats}
    if unknown := document.blocked_seat_ids - known:
        raise LayoutError(f"blocked_seat_ids: there is no seat {min(unknown)!r}")
    check_policy(document.zones, document.policy)
    _check_moment("sale_start", document.sale_start)
    _check_moment("sale_end", document.sale_end)
    if len(set(document.days)) < len(document.days) or list(document.days) != sorted(document.days):
        raise LayoutError("days: each day once, the first one first")


def _check_moment(place: str, moment: datetime | None) -> None:
    if moment is None:
        return
    if moment.tzinfo is None:
        raise LayoutError(f"{place}: {moment.isoformat()} has no time zone")
    if not _EARLIEST < moment < _LATEST:
        raise LayoutError(f"{place}: {moment.isoformat()} is not between {_EARLIEST.year} and {_LATEST.year}")


def check_zones(zones: tuple["ZoneDocument", ...]) -> None:
    """Zones and seats have ids and places of their own, and each zone is whole."""
    zone_places: dict[str, int] = {}
    for index, zone in enumerate(zones):
        first = zone_places.setdefault(zone.zone_id, index)
        if first != index:
            raise LayoutError(f"zones[{index}].zone_id: {zone.zone_id!r} is also zones[{first}]")
        _check_zone(f"zones[{index}]", zone)
    if (total := sum(zone.capacity for zone in zones)) > _CAPACITY_MAX:
        raise LayoutError(f"zones: {total} places in all, at most {_CAPACITY_MAX} are possible")
    _check_seats(zones)


def check_groups(zones: tuple["ZoneDocument", ...], groups: tuple["SeatGroupDocument", ...]) -> None:
    """The seats of a group, and companions with their wheelchair seat, exist and stand in one zone."""
    zone_of = {seat.seat_id: zone.zone_id for zone in zones for seat in zone.seats}
    for index, group in enumerate(groups):
        place = f"seat_groups[{index}].seat_ids"
        for seat_id in group.seat_ids:
            if seat_id not in zone_of:
                raise LayoutError(f"{place}: there is no seat {seat_id!r}")
        if len(set(group.seat_ids)) < len(group.seat_ids):
            raise LayoutError(f"{place}: a seat appears twice")
        if len({zone_of[seat_id] for seat_id in group.seat_ids}) > 1:
            raise LayoutError(f"{place}: the seats are in several zones")
    category = {seat.seat_id: seat.category for zone in zones for seat in zone.seats}
    for place, seat in _seats(zones):
        for companion in seat.companion_seat_ids:
            if companion == seat.seat_id or zone_of.get(companion) != zone_of[seat.seat_id]:
                raise LayoutError(f"{place}.companion_seat_ids: there is no other seat {companion!r} in this zone")
        if seat.companion_seat_ids and seat.category != "wheelchair":
            raise LayoutError(f"{place}.companion_seat_ids: only a wheelchair seat has companions")
        for companion in seat.companion_seat_ids:
            if category[companion] != "companion":
                raise LayoutError(
                    f"{place}.companion_seat_ids: the category of {companion!r} is {category[companion]}, not companion"
                )


def check_policy(zones: tuple["ZoneDocument", ...], policy: "Policy") -> None:
    """The zones are of kinds that the policy allows."""
    for index, zone in enumerate(zones):
        place = f"zones[{index}].zone_type"
        if zone.zone_type.vip and not policy.allow_vip_zones:
            raise LayoutError(f"{place}: the policy does not allow VIP zones (allow_vip_zones)")
        if zone.zone_type.seated and not policy.allow_reserved_seating:
            raise LayoutError(f"{place}: the policy does not allow reserved seats (allow_reserved_seating)")
        if not zone.zone_type.seated and not policy.allow_ga_seating:
            raise LayoutError(f"{place}: the policy does not allow general admission (allow_ga_seating)")
    if len({zone.zone_type.seated for zone in zones}) > 1 and not policy.allow_hybrid_ga_reserved:
        raise LayoutError(
            "zones: the policy does not allow reserved seats and general admission together (allow_hybrid_ga_reserved)"
        )


def _check_zone(place: str, zone: "ZoneDocument") -> None:
    if zone.zone_type.seated and not zone.seats:
        raise LayoutError(f"{place}.seats: a {zone.zone_type} zone needs seats")
    if not zone.zone_type.seated and zone.seats:
        raise LayoutError(f"{place}.seats: a {zone.zone_type} zone has places, not seats")
    if zone.seats and zone.capacity > len(zone.seats):
        raise LayoutError(f"{place}.capacity: {zone.capacity} is more than its {len(zone.seats)} seats")
    if zone.access_mode is AccessMode.MEMBERSHIP_TIER and not zone.membership_tier:
        raise LayoutError(f"{place}.membership_tier: a zone for members has to say of which tier")
    if zone.access_mode is AccessMode.ROLE_BASED and not zone.allowed_roles:
        raise LayoutError(f"{place}.allowed_roles: a zone for roles has to name at least one")
    rows = [row for row, _ in groupby(zone.seats, key=lambda seat: seat.row)]
    if len(rows) != len(set(rows)):
        raise LayoutError(f"{place}.seats: the seats of a row must follow each other")


def _check_seats(zones: tuple["ZoneDocument", ...]) -> None:
    ids: dict[str, str] = {}
    numbers: dict[tuple[str, str, int], str] = {}
    positions: dict[tuple[float, float], str] = {}
    for place, seat in _seats(zones):
        zone = place.partition(".")[0]
        for name, taken in (
            ("seat_id", ids.setdefault(seat.seat_id, place)),
            ("number", numbers.setdefault((zone, seat.row, seat.number), place)),
        ):
            if taken != place:
                raise LayoutError(f"{place}.{name}: {getattr(seat, name)!r} is also {taken}")
        if seat.coordinates:
            taken = positions.setdefault((seat.coordinates.x, seat.coordinates.y), place)
            if taken != place:
                raise LayoutError(f"{place}.coordinates: {taken} stands at the same position")


def _seats(zones: tuple["ZoneDocument", ...]) -> Iterator[tuple[str, "SeatDocument"]]:
    """Every seat with its place in the document."""
    for index, zone in enumerate(zones):
        for number, seat in enumerate(zone.seats):
            yield f"zones[{index}].seats[{number}]", seat
