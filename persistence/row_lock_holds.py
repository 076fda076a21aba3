"""Deciding holds on an event's rows: the rules of hold_seats.lua and allocate_seats.lua, in the same order."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.engine import choosing
from holdfast.engine.audit import Actor
from holdfast.engine.backend import NEVER_MS, Holder, HoldReply, Position
from holdfast.engine.choosing import Choice, choose_seats, draw_stretch, nearest_block
from holdfast.engine.layout import MAX_ORDINALS, CompiledEvent, SeatCategory, Zone
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from holdfast.persistence.operations import read_caller
from holdfast.persistence.row_lock_companions import book, choose_accessible, too_many_wheelchairs
from holdfast.persistence.row_lock_orphans import find_orphans
from holdfast.persistence.row_lock_runs import FreeSeats, IsUnwanted
from holdfast.persistence.row_lock_view import ACTIVE, AVAILABLE, HELD, SOLD, Asks, Held, View, units_by_zone

MAX_UNITS = 100
MAX_ZONES = 100
MAX_META_BYTES = 4096
MAX_LISTED_HOLDS = 128
TTL_MS = range(1_000, 86_400_001)


class Refusal(msgspec.Struct, frozen=True):
    """Why a hold is not given, when that may change, and what is in the way."""

    status: Status
    lifts_ms: int = 0
    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()


class Chosen(NamedTuple):
    """Seats that may be had, the overdue holds that have to go for them, and the seats that are then left alone."""

    seats: tuple[Pair, ...] = ()
    due: Sequence[Held] = ()
    orphans: tuple[Pair, ...] = ()


class Wish(msgspec.Struct, frozen=True):
    """A request to hold named seats and quantities, or so many seats of one of the zones.

    Of an offer `near` is the place in the map, and `take` says whether it is to be held. `categories` are those of the
    seats to choose from, if some are left out by that.
    """

    event: CompiledEvent
    holder: Holder
    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()
    zones: tuple[int, ...] = ()
    count: int = 0
    near: int = 0
    take: bool = True
    accessible: bool = False
    categories: frozenset[SeatCategory] | None = None

    def asks(self) -> Asks:
        policy = self.event.document.policy
        follows_address = policy.max_holds_per_ip and self.holder.address
        return Asks(
            hold_ids=(self.holder.hold_id,),
            ordinals=self._ordinals(),
            zones=self.zones or tuple(pair.zone for pair in (*self.seats, *self.quantities)),
            user_ids=(self.holder.user_id,),
            addresses=(self.holder.address,) if follows_address else (),
            window_ms=policy.rate_limit_seconds * 1000,
        )

    def _ordinals(self) -> tuple[int, ...]:
        """The seats, their rows where it matters what is left of these, and what belongs to wheelchair seats."""
        named = {seat.value for seat in self.seats[: MAX_UNITS + 1] if seat.value < MAX_ORDINALS}
        if self.event.document.policy.watches_orphans:
            named |= {each for seat in named & self.event.seat_at.keys() for each in self.event.row_around(seat)}
        return tuple(named | self._paired())

    def _paired(self) -> set[int]:
        """Of an accessible choice the seats to choose from; else what belongs to the wheelchair seats asked for."""
        paired = self.event.paired
        if self.accessible:
            zones = [self.event.zones[zone] for zone in self.zones]
            return {ordinal for ordinal in paired if any(zone.first <= ordinal <= zone.last for zone in zones)}
        return {other.value for seat in self.seats[: MAX_UNITS + 1] for other in paired.get(seat.value, ())}


# Chooses seats of some zones, as if some others were free too.
ChooseSeats = Callable[[View, Wish, Sequence[int], set[int]], Awaitable[Chosen]]


def refused(status: Status, now_ms: int, position: Position) -> HoldReply:
    return HoldReply(status, None, 0, now_ms, position, (), ())


async def hold_seats(view: View, wish: Wish) -> HoldReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """Hold named seats and quantities, all or nothing. What the user already holds is not held again."""
    if not view.served:
        return _refuse(view, Refusal(Status.FENCED))
    wanted = units_by_zone(wish.seats, wish.quantities)
    if not (caller := _caller(wish.holder)) or not _well_formed(wish):
        return _refuse(view, Refusal(Status.INVALID_REQUEST))
    if reply := _known(view, wish, wanted.total()):
        return reply
    refusal = _admission(view, wish) or _misplaced(view, wish) or _obstacle(view, wish)
    if refusal:
        return _refuse(view, refusal)
    owners = {seat: view.owner(seat.value) for seat in wish.seats}
    own = {seat: hold for seat, hold in owners.items() if hold and hold.is_live(view.now_ms)}
    rest = tuple(seat for seat in wish.seats if seat not in own)
    if own and not rest and not wish.quantities:
        return _reply(view, Status.ALREADY_HELD, next(iter(own.values())))
    if wheelchairs := too_many_wheelchairs(view, wish.event, wish.holder.user_id, rest):
        return _refuse(view, Refusal(Status.WHEELCHAIR_LIMIT_EXCEEDED, seats=wheelchairs))
    due = list({hold.hold_id: hold for hold in owners.values() if hold and hold.is_overdue(view.now_ms)}.values())
    orphans, unexcused = find_orphans(view, wish.event, rest, due)
    if unexcused and wish.event.document.policy.orphan_avoidance_strict:
        return _refuse(view, Refusal(Status.LEAVES_ORPHAN, seats=unexcused))
    wanted = units_by_zone(rest, wish.quantities)
    if refusal := _over_limit(view, wish, wanted.total()):
        return _refuse(view, refusal)
    if view.lacking(wanted) and not view.overdue:
        return _refuse(view, Refusal(Status.BLOCK_AT_CAPACITY, quantities=view.lacking(wanted)))
    view.require_locks()
    if stuck := [hold for hold in due if hold not in await view.lockable(due)]:
        seats = tuple(seat for seat, hold in owners.items() if hold in stuck)
        return _refuse(view, Refusal(Status.SEAT_HELD_BY_ANOTHER_USER, seats=seats))
    return await _make_room_and_place(view, wish, caller, Chosen(rest, due, orphans))


async def allocate_seats(view: View, wish: Wish) -> HoldReply:
    """Hold so many seats of one of the zones, the best that are free, chosen as engine/choosing.py says."""
    caller = _before_choosing(view, wish)
    if isinstance(caller, HoldReply):
        return caller
    zones = [view.zones[zone] for zone in wish.zones]
    if not view.overdue and all(zone.seats - zone.held - zone.sold - zone.blocked < wish.count for zone in zones):
        return _refuse(view, Refusal(Status.NO_AVAILABLE_SEATS))
    view.require_locks()
    chosen = await _choose(view, wish)
    if not chosen.seats:
        return _refuse(view, Refusal(Status.NO_AVAILABLE_SEATS))
    return await _make_room_and_place(view, wish, caller, chosen)


async def allocate_accessible_seats(view: View, wish: Wish) -> HoldReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """Hold a wheelchair seat of one of the zones, the best that is free, with so many of its companion seats."""
    if not view.served:
        return _refuse(view, Refusal(Status.FENCED))
    if not (caller := _caller(wish.holder)) or not _well_formed_choice(wish):
        return _refuse(view, Refusal(Status.INVALID_REQUEST))
    if reply := _known(view, wish, wish.count):
        return reply
    if refusal := _admission(view, wish) or _seatless(view, wish):
        return _refuse(view, refusal)
    view.require_locks()
    seats, due = await choose_accessible(view, wish.event, wish.zones, wish.count)
    if not seats:
        return _refuse(view, Refusal(Status.NO_AVAILABLE_SEATS))
    if wheelchairs := too_many_wheelchairs(view, wish.event, wish.holder.user_id, seats):
        return _refuse(view, Refusal(Status.WHEELCHAIR_LIMIT_EXCEEDED, seats=wheelchairs))
    if refusal := _over_limit(view, wish, wish.count):
        return _refuse(view, refusal)
    return await _make_room_and_place(view, wish, caller, Chosen(seats, due))


async def offer_seats(view: View, wish: Wish) -> HoldReply:
    """Hold or name free seats next to each other, the nearest to a place, as engine/choosing.py says."""
    caller = _before_choosing(view, wish)
    if isinstance(caller, HoldReply):
        return caller
    with_room = [zone for zone in wish.zones if view.zones[zone].free >= wish.count]
    if not with_room:
        return _refuse(view, Refusal(Status.NO_AVAILABLE_SEATS))
    view.require_locks()
    chosen = await _choose_and_lock(view, wish, with_room, set(), _choose_nearest)
    if not chosen.seats:
        return _refuse(view, Refusal(Status.NO_AVAILABLE_SEATS))
    if not wish.take:
        return HoldReply(Status.OFFERED, None, 0, view.now_ms, view.position(0), chosen.seats, ())
    return await _make_room_and_place(view, wish, caller, chosen)


def _before_choosing(view: View, wish: Wish) -> Actor | HoldReply:
    """Who asks for seats to be chosen, or the answer if there is no need to look at any."""
    if not view.served:
        return _refuse(view, Refusal(Status.FENCED))
    if not (caller := _caller(wish.holder)) or not _well_formed_choice(wish):
        return _refuse(view, Refusal(Status.INVALID_REQUEST))
    if reply := _known(view, wish, wish.count):
        return reply
    refusal = _admission(view, wish) or _seatless(view, wish) or _over_limit(view, wish, wish.count)
    return _refuse(view, refusal) if refusal else caller


async def _choose(view: View, wish: Wish) -> Chosen:
    """The best seats, and the overdue holds that have to go for them. What others have locked is taken.

    Zones that lack room come into consideration together with what overdue holds have.
    """
    with_room = [zone for zone in wish.zones if view.zones[zone].free >= wish.count]
    chosen = await _choose_and_lock(view, wish, with_room, set(), _choose_free)
    if chosen.seats:
        return chosen
    due = await view.lockable(view.overdue)
    if not due and len(with_room) == len(wish.zones):
        return Chosen()
    freed = {ordinal for hold in due for ordinal in hold.ordinals if ordinal not in wish.event.paired}
    chosen = await _choose_and_lock(view, wish, wish.zones, freed, _choose_free)
    return chosen._replace(due=due) if chosen.seats else Chosen()


async def _choose_and_lock(
    view: View, wish: Wish, zones: Sequence[int], freed: set[int], choose: ChooseSeats
) -> Chosen:
    """Seats of these zones that can be locked, as if others were free too."""
    while (chosen := await choose(view, wish, zones, freed)).seats:
        if await view.lock(seat.value for seat in chosen.seats):
            break
        zone = wish.event.zones[chosen.seats[0].zone]
        locked = {seat.value for seat in chosen.seats if view.is_foreign(seat.value)}
        view.free_seats(zone.index, zone.first, zone.last, wish.event.paired).take(locked)
        freed = freed - locked
    return chosen


async def _choose_free(view: View, wish: Wish, zones: Sequence[int], freed: set[int]) -> Chosen:
    if not freed:
        # Most requests end here, and need not know every free seat.
        for zone in zones:
            there = wish.event.zones[zone]
            if run := await _free_seats(view, wish.event, there).first_clean_run(wish.count, _unwanted(wish)):
                return Chosen(tuple(Pair(zone, each) for each in run))
    drawn = [await _draw(view, wish.event, wish.event.zones[zone], freed, _unwanted(wish)) for zone in zones]
    choice = choose_seats(drawn, choosing.Wish.under(wish.event.document.policy, wish.count))
    return _chosen(wish, zones, choice)


async def _choose_nearest(view: View, wish: Wish, zones: Sequence[int], freed: set[int]) -> Chosen:
    """The block nearest to the place of an offer; in a zone where that place is not, the first."""
    stretches = [wish.event.zones[zone] for zone in zones]
    drawn = [await _draw(view, wish.event, zone, freed) for zone in stretches]
    places = [wish.near - zone.first if zone.first <= wish.near <= zone.last else 0 for zone in stretches]
    choice = nearest_block(drawn, places, choosing.Wish.under(wish.event.document.policy, wish.count))
    return _chosen(wish, zones, choice)


def _free_seats(view: View, event: CompiledEvent, zone: Zone) -> FreeSeats:
    """The free seats of a zone that may be given to anybody: no wheelchair or companion seats."""
    return view.free_seats(zone.index, zone.first, zone.last, event.paired)


def _unwanted(wish: Wish) -> IsUnwanted | None:
    """What tells of an ordinal that its seat is of a category that is not wanted."""
    seat_at, categories = wish.event.seat_at, wish.categories
    return None if categories is None else lambda ordinal: seat_at[ordinal].category not in categories


async def _draw(
    view: View, event: CompiledEvent, zone: Zone, freed: set[int], is_unwanted: IsUnwanted | None = None
) -> bytes:
    """A zone's stretch of the map, in which seats that come free count as free."""
    free = freed.union(await _free_seats(view, event, zone).all())
    places = [each - zone.first for each in free if zone.first <= each <= zone.last]
    left_out = {place for place in places if is_unwanted(zone.first + place)} if is_unwanted else ()
    return draw_stretch(event.map[zone.first : zone.last + 1], places, left_out)


def _chosen(wish: Wish, zones: Sequence[int], choice: Choice | None) -> Chosen:
    if choice is None:
        return Chosen()
    there = wish.event.zones[zones[choice.zone]]
    seats = tuple(Pair(there.index, there.first + place) for place in choice.places)
    return Chosen(seats, orphans=tuple(Pair(there.index, there.first + place) for place in choice.orphans))


async def _make_room_and_place(view: View, wish: Wish, caller: Actor, chosen: Chosen) -> HoldReply:
    """Overdue holds make way: those on the seats, and all that were found where a zone lacks room."""
    seats, due, orphans = chosen
    wanted = units_by_zone(seats, wish.quantities)
    if view.lacking(wanted):
        due = [*due, *(hold for hold in await view.lockable(view.overdue) if hold not in due)]
    if lacking := view.lacking(wanted, due):
        return _refuse(view, Refusal(Status.BLOCK_AT_CAPACITY, quantities=lacking))
    view.expire(due, caller)
    holder = wish.holder
    zones = (view.zones[zone] for zone in wanted)
    ttl_ms = wish.event.document.policy.hold_ttl_ms(_ttl_ms(wish), zones)
    hold = Held(
        hold_id=holder.hold_id,
        user_id=holder.user_id,
        status=ACTIVE,
        ends_ms=view.now_ms + ttl_ms,
        created_ms=view.now_ms,
        ttl_ms=ttl_ms,
        fingerprint=holder.fingerprint,
        address=holder.address,
        cart=holder.cart,
        checkout="",
        extension="",
        epoch=0,
        seq=0,
        lines=(
            *((seat.zone, seat.value, 1) for seat in seats),
            *((zone, None, many) for zone, many in wish.quantities),
        ),
    )
    view.place(hold, caller, orphans=orphans if wish.event.document.policy.orphan_audit_enabled else ())
    book(view, wish.event, hold, caller)
    return _reply(view, Status.DONE, hold)


def _caller(holder: Holder) -> Actor | None:
    """Who asks, as the audit wants it; nothing if what describes the holder is not well formed."""
    texts = ((holder.fingerprint, 16), (holder.address, 14), (holder.cart, 255))
    if any("\n" in text or len(text.encode()) > limit for text, limit in texts) or len(holder.meta) > MAX_META_BYTES:
        return None
    if holder.ttl_ms is not None and holder.ttl_ms not in TTL_MS:
        return None
    try:
        return read_caller(holder.meta)
    except msgspec.DecodeError:
        return None


def _ttl_ms(wish: Wish) -> int:
    return wish.event.ttl_ms if wish.holder.ttl_ms is None else wish.holder.ttl_ms


def _well_formed(wish: Wish) -> bool:
    """Something is asked for, nothing twice, and no quantity of nothing. Too much is for another refusal."""
    if max(len(wish.seats), len(wish.quantities)) > MAX_UNITS:
        return True
    seat_zones = {seat.zone for seat in wish.seats}
    zones = [pair.zone for pair in wish.quantities]
    distinct = len({seat.value for seat in wish.seats}) == len(wish.seats) and len({*zones, *seat_zones}) == len(
        zones
    ) + len(seat_zones)
    return bool(wish.seats or wish.quantities) and distinct and all(pair.value > 0 for pair in wish.quantities)


def _known(view: View, wish: Wish, units: int) -> HoldReply | None:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
    """The answers that come before the event's own rules: too many units, no event, an id that is on record."""
    if units > min(MAX_UNITS, wish.event.document.policy.max_seats_per_booking):
        return _refuse(view, Refusal(Status.TOO_MANY_SEATS))
    if view.version is None:
        return _refuse(view, Refusal(Status.EVENT_NOT_FOUND))
    hold = view.holds.get(wish.holder.hold_id)
    if hold is None:
        return None
    if (hold.user_id, hold.fingerprint) != (wish.holder.user_id, wish.holder.fingerprint):
        return _refuse(view, Refusal(Status.HOLD_ID_REUSED))
    if hold.status == "cancelled":
        return _refuse(view, Refusal(Status.HOLD_RELEASED))
    if hold.status == "expired" or hold.is_overdue(view.now_ms):
        return _refuse(view, Refusal(Status.HOLD_EXPIRED))
    return _reply(view, Status.REPEATED, hold)


def _admission(view: View, wish: Wish) -> Refusal | None:
    """Whether the event sells now, under the configuration the caller compiled."""
    event = wish.event
    if event.version != view.version:
        return Refusal(Status.STALE_CONFIG)
    selling = event.document.state.selling
    if selling != 1:
        return Refusal(Status.EVENT_UNAVAILABLE if selling == 2 else Status.EVENT_NOT_AVAILABLE)
    if view.now_ms < event.opens_ms:
        return Refusal(Status.EVENT_SALES_CLOSED, lifts_ms=event.opens_ms)
    if event.closes_ms and view.now_ms > event.closes_ms:
        return Refusal(Status.EVENT_SALES_CLOSED)
    return None


def _well_formed_choice(wish: Wish) -> bool:
    """Some seats, of some zones, none of them twice."""
    distinct = len(set(wish.zones)) == len(wish.zones) and 0 <= wish.near < MAX_ORDINALS
    return 1 <= wish.count < MAX_ORDINALS and 1 <= len(wish.zones) <= MAX_ZONES and distinct


def _seatless(view: View, wish: Wish) -> Refusal | None:
    """Zones to choose from that have no seats, or do not exist."""
    wrong = [zone for zone in wish.zones if zone not in view.zones or not view.zones[zone].seats]
    return Refusal(Status.SEAT_NOT_FOUND, quantities=tuple(Pair(zone, wish.count) for zone in wrong)) if wrong else None


def _misplaced(view: View, wish: Wish) -> Refusal | None:
    """Seats in a zone that has none, quantities of a zone that has seats, zones that do not exist."""
    seated = {zone for zone, counts in view.zones.items() if counts.seats}
    wrong = [
        Pair(zone, units) for zone, units in Counter(seat.zone for seat in wish.seats).items() if zone not in seated
    ]
    wrong += [pair for pair in wish.quantities if pair.zone in seated or pair.zone not in view.zones]
    return Refusal(Status.SEAT_NOT_FOUND, quantities=tuple(wrong)) if wrong else None


def _obstacle(view: View, wish: Wish) -> Refusal | None:
    """The gravest reason why some of the seats cannot be had, and the seats it concerns."""
    reasons: dict[Status, list[Pair]] = {}
    lifts_ms = 0
    asked, percent = {seat.value for seat in wish.seats}, wish.event.document.policy.companion_percent
    for seat in wish.seats:
        found, owner = view.seats.get(seat.value), view.owner(seat.value)
        if found is None or found.zone != seat.zone:
            reasons.setdefault(Status.SEAT_NOT_FOUND, []).append(seat)
        elif found.status not in (AVAILABLE, HELD):
            reasons.setdefault(Status.SEAT_NOT_AVAILABLE, []).append(seat)
        elif owner and owner.is_live(view.now_ms):
            if owner.user_id != wish.holder.user_id:
                reasons.setdefault(Status.SEAT_HELD_BY_ANOTHER_USER, []).append(seat)
                lifts_ms = max(lifts_ms, owner.ends_ms)
        elif view.kept_from(seat.value, wish.holder.user_id, asked, percent):
            reasons.setdefault(Status.SEAT_NOT_AVAILABLE, []).append(seat)
        elif view.is_foreign(seat.value):
            reasons.setdefault(Status.SEAT_HELD_BY_ANOTHER_USER, []).append(seat)
    if not reasons:
        return None
    worst = min(reasons)
    if worst != Status.SEAT_HELD_BY_ANOTHER_USER:
        states = {view.seats[seat.value].status for seat in reasons[worst] if seat.value in view.seats}
        lifts_ms = NEVER_MS if SOLD in states else 0
    return Refusal(worst, lifts_ms, seats=tuple(reasons[worst]))


def _over_limit(view: View, wish: Wish, units: int) -> Refusal | None:
    """Whether this user and this address may reserve so many units more."""
    policy, holder, now_ms = wish.event.document.policy, wish.holder, view.now_ms
    window_ms = policy.rate_limit_seconds * 1000
    of_user = view.holds_of(holder.user_id)
    recent = [hold for hold in of_user if hold.created_ms > now_ms - window_ms]
    live = [hold for hold in of_user if hold.is_live(now_ms)]
    is_full = len({hold.hold_id for hold in (*live, *recent)}) >= MAX_LISTED_HOLDS
    if is_full or _over_live_limit(live, policy.max_holds_per_user, units):
        return Refusal(Status.USER_LIMIT_EXCEEDED, lifts_ms=_first_end(live))
    if policy.max_holds_per_ip and holder.address:
        live = [hold for hold in view.holds_at(holder.address) if hold.is_live(now_ms)]
        if len(live) >= MAX_LISTED_HOLDS or _over_live_limit(live, policy.max_holds_per_ip, units):
            return Refusal(Status.ADDRESS_LIMIT_EXCEEDED, lifts_ms=_first_end(live))
    excess = sum(hold.units for hold in recent) + units - policy.rate_limit_seats
    if not policy.rate_limit_seats or excess <= 0:
        return None
    for hold in recent:
        excess -= hold.units
        if excess <= 0:
            return Refusal(Status.RATE_LIMIT_EXCEEDED, lifts_ms=hold.created_ms + window_ms)
    return Refusal(Status.RATE_LIMIT_EXCEEDED)


def _over_live_limit(live: Sequence[Held], limit: int | None, units: int) -> bool:
    return bool(limit) and sum(hold.units for hold in live) + units > (limit or 0)


def _first_end(live: Sequence[Held]) -> int:
    return min((hold.ends_ms for hold in live), default=0)


def _refuse(view: View, refusal: Refusal) -> HoldReply:
    nowhere = view.position(0)
    return HoldReply(refusal.status, None, refusal.lifts_ms, view.now_ms, nowhere, refusal.seats, refusal.quantities)


def _reply(view: View, status: Status, hold: Held) -> HoldReply:
    until_ms = hold.ends_ms if hold.status == ACTIVE else 0
    return HoldReply(status, hold.hold_id, until_ms, view.now_ms, view.position_of(hold), hold.seats, hold.quantities)
