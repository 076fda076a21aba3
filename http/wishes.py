"""What a request to hold asks for: as clients say it, and as the engine names it."""

from collections import Counter
from enum import StrEnum
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.layout import CompiledEvent, SeatCategory
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.http.errors import Refused, problem, reason_of
from holdfast.http.holding import CartToken, Source
from holdfast.http.units import Id, find_seats, find_zone

UNITS_MAX = 100
ZONES_MAX = 100

Units = Annotated[int, Meta(ge=1, le=UNITS_MAX)]


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Places in a general-admission zone."""

    zone_id: Id
    quantity: Units


class BestAvailable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best seats that are free: next to each other, and leaving nobody alone, where that is possible.

    Name a zone, or zones in the order in which you prefer them: all seats are in one of them. Or name a price, or
    categories of seats: then it is one of the zones with that price, or with such seats, that are open to you, or of
    those that you name as well.
    """

    count: Units
    zone_id: Id | None = None
    zones: Annotated[
        tuple[Id, ...], Meta(max_length=ZONES_MAX, description="zones with seats, in order of preference")
    ] = ()
    pricing_rule_id: Annotated[Id | None, Meta(description="only zones with this price")] = None
    categories: Annotated[
        frozenset[SeatCategory],
        Meta(
            description="only seats of these categories; `wheelchair` and `companion` seats are given to who asks for "
            "`accessible` ones, which may name these two categories and no others"
        ),
    ] = frozenset()
    accessible: Annotated[
        bool, Meta(description="a wheelchair seat, and for the rest of the count companion seats of it")
    ] = False


class CounterOffer(StrEnum):
    """What to do about seats that are not to be had: name others nearby that are free, or hold these."""

    PROPOSE = "propose"
    HOLD = "hold"


class HoldRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to hold, all or nothing: seats and quantities, or the best available."""

    seats: Annotated[tuple[Id, ...], Meta(max_length=UNITS_MAX)] = ()
    quantities: Annotated[tuple[Quantity, ...], Meta(max_length=UNITS_MAX)] = ()
    best_available: BestAvailable | None = None
    counter_offer: Annotated[
        CounterOffer | None, Meta(description="if the seats are not to be had: name the nearest others, or hold them")
    ] = None
    source: Source = Source.WEB
    cart_token: CartToken = ""
    guests: Annotated[
        tuple[UUID, ...], Meta(max_length=UNITS_MAX, description="for whom the other places of a restricted zone are")
    ] = ()


class Wish(msgspec.Struct, frozen=True):
    """What a request asks for, as the engine names it."""

    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()
    zones: tuple[int, ...] = ()
    count: int = 0
    # Whether the zones are all that there are of some kind, rather than those that somebody named.
    any_zone: bool = False
    accessible: bool = False
    categories: frozenset[SeatCategory] = frozenset()

    @property
    def units(self) -> dict[int, int]:
        """How many seats and places are wanted in each zone; if the engine is to choose, in any of them."""
        found = Counter(seat.zone for seat in self.seats)
        for zone, quantity in self.quantities:
            found[zone] += quantity
        for zone in self.zones:
            found[zone] += self.count
        return found

    def clustered(self, event: CompiledEvent) -> "Wish":
        """The wish under the event's policy: where the system chooses seats, the best cluster of as many as are named,
        in their zones. Raises Refused if there are places beside them, because nothing is chosen together with those.
        """
        if not self.seats or not event.document.policy.prefer_clustering_over_selection:
            return self
        if self.quantities:
            raise Refused(problem("selection_not_offered"))
        return Wish(zones=tuple(dict.fromkeys(seat.zone for seat in self.seats)), count=len(self.seats))


def find_wish(event: CompiledEvent, body: HoldRequest) -> Wish:
    """What a request asks for. Raises Refused for what makes no sense."""
    if (body.best_available is None) == (not body.seats and not body.quantities):
        raise Refused(problem("invalid_request", "Ask for seats and quantities, or for the best available."))
    if body.best_available is not None:
        wish = _find_best(event, body.best_available)
    else:
        quantities = tuple(Pair(find_zone(event, each.zone_id), each.quantity) for each in body.quantities)
        wish = Wish(find_seats(event, body.seats), quantities)
    if body.counter_offer and wish.quantities:
        raise Refused(problem("invalid_request", "A counter-offer is made for seats, not for places."))
    if body.counter_offer and (wish.accessible or wish.categories):
        raise Refused(problem("invalid_request", "There is no counter-offer for wheelchair seats or for categories."))
    return wish


_ACCESSIBLE = frozenset(each for each in SeatCategory if each.accessible)


def _find_best(event: CompiledEvent, best: BestAvailable) -> Wish:
    named, filtered = _named_zones(event, best), bool(best.pricing_rule_id or best.categories)
    zones = _matching_zones(event, best, named) if filtered else named
    seatless = [zone for zone in zones if not event.zones[zone].document.zone_type.seated]
    if not seatless:
        return Wish(
            zones=zones if named else zones[:ZONES_MAX],
            count=best.count,
            any_zone=not named,
            accessible=best.accessible,
            categories=frozenset() if best.accessible else best.categories,
        )
    if best.accessible or best.categories:
        raise Refused(problem("invalid_request", "A choice of such seats needs zones with seats."))
    if len(zones) > 1:
        names = tuple(event.zones[zone].document.zone_id for zone in seatless)
        raise Refused(problem("invalid_request", "Zones to choose from must have seats.", zones=names))
    # One place of a general-admission zone is as good as another.
    return Wish(quantities=(Pair(zones[0], best.count),))


def _named_zones(event: CompiledEvent, best: BestAvailable) -> tuple[int, ...]:
    """The zones that a request names. Raises Refused for a request that contradicts itself."""
    if best.zone_id is not None and best.zones:
        raise Refused(problem("invalid_request", "Name zone_id or zones."))
    if not (best.zone_id or best.zones or best.pricing_rule_id or best.categories):
        raise Refused(problem("invalid_request", "Ask for the best available of zones, of a price or of categories."))
    if best.categories and not _categories_agree(best):
        detail = "Wheelchair and companion seats are chosen with accessible, and other seats without it."
        raise Refused(problem("invalid_request", detail))
    named = (best.zone_id,) if best.zone_id is not None else best.zones
    zones = tuple(find_zone(event, each) for each in named)
    if len(set(zones)) < len(zones):
        raise Refused(problem("invalid_request", "A zone is named twice."))
    return zones


def _categories_agree(best: BestAvailable) -> bool:
    """Whether the categories are of seats that such a request can be given."""
    if not best.accessible:
        return not best.categories & _ACCESSIBLE
    wheelchair_only = best.count == 1 and best.categories == {SeatCategory.WHEELCHAIR}
    return wheelchair_only or best.categories == _ACCESSIBLE


def _matching_zones(event: CompiledEvent, best: BestAvailable, named: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the zones named, or of all with seats, that have the price and the categories. Raises Refused if none
    has."""
    zones = [event.zones[each] for each in named] or [each for each in event.zones if each.length]
    if best.pricing_rule_id is not None:
        zones = [each for each in zones if each.document.pricing_rule_id == best.pricing_rule_id]
        if not zones:
            raise Refused(problem(reason_of(Status.SEAT_NOT_FOUND), "No such zone has this price."))
    if best.categories and not best.accessible:
        zones = [each for each in zones if each.categories & best.categories or not each.length]
        if not zones:
            raise Refused(problem(reason_of(Status.SEAT_NOT_FOUND), "No such zone has seats of these categories."))
    return tuple(each.index for each in zones)
