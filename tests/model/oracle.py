"""The rules of Holdfast for one event, in plain Python: what every backend must answer, and what it must then hold.

Written to be read rather than to be fast. Counters are never kept: they are added up from the holds each time. The one
thing the oracle takes from the backend under test is its clock, as the reply to the same call gives it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from uuid import UUID

from holdfast.engine.backend import NEVER_MS, AdminReply, ExpireReply, Holder, HoldReply, HoldsReply, Position
from holdfast.engine.choosing import Wish, choose_seats, nearest_block
from holdfast.engine.layout import CompiledEvent, EventState, SeatCategory
from holdfast.engine.records import HoldRecord, Pair, ZoneCounts
from holdfast.engine.status import Status
from support.drawn import without_others

HELD, SOLD, RELEASED, EXPIRED = "h", "s", "r", "x"
ENDED = {SOLD: Status.HOLD_SOLD, RELEASED: Status.HOLD_RELEASED, EXPIRED: Status.HOLD_EXPIRED}
MAX_ADMIN_SEATS = 1000
MAX_OPERATION_HOLDS = 50


@dataclass(eq=False)
class Hold:
    """A hold on record: what was asked, and what has become of it."""

    holder: Holder
    seats: tuple[Pair, ...]
    quantities: tuple[Pair, ...]
    created_ms: int
    ttl_ms: int
    ends_ms: int
    seq: int
    state: str = HELD
    checkout: str = ""
    extension: str = ""
    forget_at_ms: int = 0
    declined: bool = False

    @property
    def hold_id(self) -> UUID:
        return self.holder.hold_id

    @property
    def user_id(self) -> UUID:
        return self.holder.user_id

    @property
    def units(self) -> int:
        return sum(_units(self.seats, self.quantities).values())

    def is_live(self, now_ms: int) -> bool:
        return self.state == HELD and self.ends_ms > now_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Past its time, and nobody has ended it yet."""
        return self.state == HELD and self.ends_ms <= now_ms

    def record(self) -> HoldRecord:
        return HoldRecord(
            user_id=self.user_id,
            state=self.state,
            seq=self.seq,
            created_ms=self.created_ms,
            ttl_ms=self.ttl_ms,
            seats=self.seats,
            quantities=self.quantities,
            fingerprint=self.holder.fingerprint,
            address=self.holder.address,
            cart=self.holder.cart,
            checkout=self.checkout,
            extension=self.extension,
        )


@dataclass
class Refusal:
    """Why a hold is not given, when that may change, and what is in the way."""

    status: Status
    lifts_ms: int = 0
    seats: tuple[Pair, ...] = ()
    quantities: tuple[Pair, ...] = ()


@dataclass
class Oracle:
    """One open event. `position` says how the backend under test names a place in its log."""

    event: CompiledEvent
    retention_ms: int
    position: Callable[[int], Position]
    seq: int = 1
    holds: dict[UUID, Hold] = field(default_factory=dict)
    taken: dict[int, Hold] = field(default_factory=dict)
    blocked: set[int] = field(default_factory=set)
    blocked_places: Counter[int] = field(default_factory=Counter)
    forgotten_sales: list[Hold] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = self.event.document.blocked_seat_ids
        self.blocked |= {pair.value for name, pair in self.event.seats.items() if name in names}

    # What the event looks like.

    def map(self) -> bytes:
        """One byte per place: '.', 'w' or 'a' free, 'h' held, 's' sold, 'b' blocked, '|' between rows."""
        places = bytearray(self.event.map)
        for ordinal in self.event.seat_at:
            places[ordinal] = ord(self._seat_state(ordinal))
        return bytes(places)

    def shown_map(self, now_ms: int) -> bytes:
        """The same with 'c' for companion seats that are kept for somebody."""
        places = bytearray(self.map())
        for ordinal in self.event.paired:
            if places[ordinal] == ord("a") and self._is_kept(ordinal, None, (), now_ms):
                places[ordinal] = ord("c")
        return bytes(places)

    def _is_kept(self, ordinal: int, user_id: UUID | None, asked: Iterable[Pair], now_ms: int) -> bool:
        """Whether a free companion seat is kept from a user: a wheelchair seat of it was taken by somebody who has not
        declined, and neither has the user one nor asks for one."""
        if self.event.seat_at[ordinal].category != SeatCategory.COMPANION:
            return False
        takers = [self.taken.get(wheelchair.value) for wheelchair in self.event.paired[ordinal]]
        live = [hold for hold in takers if hold and (hold.state == SOLD or hold.is_live(now_ms))]
        if set(asked) & set(self.event.paired[ordinal]) or user_id in [hold.user_id for hold in live]:
            return False
        zone = next(zone.index for zone in self.event.zones if zone.first <= ordinal <= zone.last)
        counts, percent = self._counts(zone), self.event.document.policy.companion_release_occupancy_threshold
        below = 100 * (counts.held + counts.sold) < percent * counts.capacity
        return below and any(not hold.declined for hold in live)

    def _wheelchairs(self, seats: Iterable[Pair]) -> tuple[Pair, ...]:
        return tuple(seat for seat in seats if self.event.seat_at[seat.value].category == SeatCategory.WHEELCHAIR)

    def _too_many_wheelchairs(self, holder: Holder, seats: tuple[Pair, ...], now_ms: int) -> Refusal | None:
        limit, asked = self.event.document.policy.max_wheelchair_seats_per_booking, self._wheelchairs(seats)
        live = [hold for hold in self.holds.values() if self._is_own(hold, holder, now_ms)]
        have = sum(len(self._wheelchairs(hold.seats)) for hold in live)
        too_many = limit and asked and have + len(asked) > limit
        return Refusal(Status.WHEELCHAIR_LIMIT_EXCEEDED, seats=asked) if too_many else None

    def zones(self) -> tuple[ZoneCounts, ...]:
        return tuple(self._counts(zone.index) for zone in self.event.zones)

    def live(self) -> dict[UUID, int]:
        """When each hold ends that has not ended."""
        return {hold.hold_id: hold.ends_ms for hold in self.holds.values() if hold.state == HELD}

    def ended(self) -> dict[UUID, int]:
        """When each ended hold may be forgotten."""
        return {hold.hold_id: hold.forget_at_ms for hold in self.holds.values() if hold.state != HELD}

    def _seat_state(self, ordinal: int) -> str:
        if ordinal in self.blocked:
            return "b"
        hold = self.taken.get(ordinal)
        if hold:
            return hold.state
        return self.event.seat_at[ordinal].category.free_letter.decode() if ordinal in self.event.seat_at else "|"

    def _counts(self, zone: int) -> ZoneCounts:
        everything = [*self.holds.values(), *self.forgotten_sales]
        held = sum(_units(hold.seats, hold.quantities)[zone] for hold in everything if hold.state == HELD)
        sold = sum(_units(hold.seats, hold.quantities)[zone] for hold in everything if hold.state == SOLD)
        seats = self._seats_of(zone)
        blocked = len(self.blocked.intersection(seats)) if seats else self.blocked_places[zone]
        return ZoneCounts(zone, self.event.zones[zone].document.capacity, len(seats), held, sold, blocked)

    def _seats_of(self, zone: int) -> list[int]:
        stretch = self.event.zones[zone]
        return [ordinal for ordinal in self.event.seat_at if stretch.first <= ordinal <= stretch.last]

    def _room(self, zone: int) -> int:
        """Units that the zone's capacity still allows. Blocked seats are out of reach anyway, blocked places not."""
        counts = self._counts(zone)
        return counts.capacity - counts.held - counts.sold - (0 if counts.seats else counts.blocked)

    def _lacking(self, wanted: Counter[int], returning: Iterable[Hold] = ()) -> tuple[Pair, ...]:
        """The zones without room for what is wanted, and the units each lacks, once some holds gave theirs back."""
        returned: Counter[int] = Counter()
        for hold in returning:
            returned += _units(hold.seats, hold.quantities)
        missing = ((zone, units - self._room(zone) - returned[zone]) for zone, units in wanted.items())
        return tuple(Pair(zone, units) for zone, units in missing if units > 0)

    def _overdue(self, now_ms: int) -> list[Hold]:
        due = [hold for hold in self.holds.values() if hold.is_overdue(now_ms)]
        return sorted(due, key=lambda hold: (hold.ends_ms, hold.hold_id.bytes))

    # Changes, each of them one entry of the log.

    def _place(self, holder: Holder, seats: tuple[Pair, ...], quantities: tuple[Pair, ...], now_ms: int) -> Hold:
        self.seq += 1
        ttl_ms = self.event.ttl_ms if holder.ttl_ms is None else holder.ttl_ms
        zones = (self._counts(zone) for zone in _units(seats, quantities))
        ttl_ms = self.event.document.policy.hold_ttl_ms(ttl_ms, zones)
        hold = Hold(holder, seats, quantities, now_ms, ttl_ms, ends_ms=now_ms + ttl_ms, seq=self.seq)
        self.holds[holder.hold_id] = hold
        self.taken.update(dict.fromkeys(_ordinals(seats), hold))
        # The audit of wheelchair seats has an entry of its own.
        self.seq += bool(self._wheelchairs(seats)) and self.event.document.policy.accessibility_audit_enabled
        return hold

    def _end(self, holds: Collection[Hold], state: str, now_ms: int) -> None:
        if not holds:
            return
        self.seq += 1
        for hold in holds:
            hold.state, hold.seq, hold.forget_at_ms = state, self.seq, now_ms + self.retention_ms
            for ordinal in _ordinals(hold.seats):
                del self.taken[ordinal]

    def _sell(self, holds: Collection[Hold], sale: str, now_ms: int) -> None:
        self.seq += 1
        for hold in holds:
            hold.declined = hold.declined and hold.state == HELD
            hold.state, hold.seq, hold.forget_at_ms = SOLD, self.seq, now_ms + self.retention_ms
            hold.checkout = sale
            self.taken.update(dict.fromkeys(_ordinals(hold.seats), hold))

    # Holding.

    def hold_seats(  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
        self,
        event: CompiledEvent,
        holder: Holder,
        seats: Sequence[tuple[int, int]],
        quantities: Sequence[tuple[int, int]],
        now_ms: int,
    ) -> HoldReply:
        wish, places = _pairs(seats), _pairs(quantities)
        if not _well_formed(wish, places):
            return self._refuse(Refusal(Status.INVALID_REQUEST), now_ms)
        units = _units(wish, places)
        if units.total() > event.document.policy.max_seats_per_booking:
            return self._refuse(Refusal(Status.TOO_MANY_SEATS), now_ms)
        if holder.hold_id in self.holds:
            return self._known_hold(holder, now_ms)
        refusal = (
            self._admission(event, now_ms) or self._misplaced(wish, places) or self._obstacle(wish, holder, now_ms)
        )
        if refusal:
            return self._refuse(refusal, now_ms)

        own = [seat for seat in wish if (hold := self.taken.get(seat.value)) and self._is_own(hold, holder, now_ms)]
        rest = tuple(seat for seat in wish if seat not in own)
        if own and not rest and not places:
            return self._reply(Status.ALREADY_HELD, self.taken[own[0].value], now_ms)

        units = _units(rest, places)
        refusal = (
            self._too_many_wheelchairs(holder, rest, now_ms)
            or self._orphaning(rest)
            or self._over_limit(event, holder, units.total(), now_ms)
        )
        if refusal:
            return self._refuse(refusal, now_ms)
        in_the_way = _unique(self.taken[ordinal] for ordinal in _ordinals(rest) if ordinal in self.taken)
        return self._make_room_and_place(holder, rest, places, in_the_way, now_ms)

    def allocate_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        now_ms: int,
        accessible: bool = False,
        categories: Collection[SeatCategory] = (),
    ) -> HoldReply:
        if reply := self._before_choosing(event, holder, zones, count, now_ms):
            return reply
        if not accessible and (refusal := self._over_limit(event, holder, count, now_ms)):
            return self._refuse(refusal, now_ms)
        with_room = [zone for zone in zones if not self._lacking(Counter({zone: count}))]
        expiring: list[Hold] = []
        choose = self._choose_accessible if accessible else partial(self._choose, categories=categories)
        seats = choose(with_room, count, expiring)
        if not seats:
            expiring = self._overdue(now_ms)
            seats = choose(zones, count, expiring)
        if not seats:
            return self._refuse(Refusal(Status.NO_AVAILABLE_SEATS), now_ms)
        if accessible:
            refusal = self._too_many_wheelchairs(holder, seats, now_ms)
            if refusal := refusal or self._over_limit(event, holder, count, now_ms):
                return self._refuse(refusal, now_ms)
        return self._make_room_and_place(holder, seats, (), expiring, now_ms)

    def offer_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        near: int,
        take: bool,
        now_ms: int,
    ) -> HoldReply:
        if reply := self._before_choosing(event, holder, zones, count, now_ms):
            return reply
        if refusal := self._over_limit(event, holder, count, now_ms):
            return self._refuse(refusal, now_ms)
        with_room = [zone for zone in zones if self._counts(zone).free >= count]
        stretches = [self.event.zones[zone] for zone in with_room]
        places = [near - zone.first if zone.first <= near <= zone.last else 0 for zone in stretches]
        drawn = [self._draw(zone, ()) for zone in with_room]
        choice = nearest_block(drawn, places, Wish.under(self.event.document.policy, count))
        if choice is None:
            return self._refuse(Refusal(Status.NO_AVAILABLE_SEATS), now_ms)
        first = stretches[choice.zone].first
        seats = tuple(Pair(with_room[choice.zone], first + place) for place in choice.places)
        if not take:
            return HoldReply(Status.OFFERED, None, 0, now_ms, self.position(0), seats, ())
        return self._make_room_and_place(holder, seats, (), [], now_ms)

    def _before_choosing(
        self, event: CompiledEvent, holder: Holder, zones: Sequence[int], count: int, now_ms: int
    ) -> HoldReply | None:
        if count < 1 or not zones or len(set(zones)) < len(zones):
            return self._refuse(Refusal(Status.INVALID_REQUEST), now_ms)
        if count > event.document.policy.max_seats_per_booking:
            return self._refuse(Refusal(Status.TOO_MANY_SEATS), now_ms)
        if holder.hold_id in self.holds:
            return self._known_hold(holder, now_ms)
        refusal = self._admission(event, now_ms)
        if not refusal and (seatless := tuple(Pair(zone, count) for zone in zones if not self._seats_of(zone))):
            refusal = Refusal(Status.SEAT_NOT_FOUND, quantities=seatless)
        return self._refuse(refusal, now_ms) if refusal else None

    def _choose_accessible(self, zones: Sequence[int], count: int, expiring: Collection[Hold]) -> tuple[Pair, ...]:
        """The first wheelchair seat of which enough companion seats are free, once some holds have ended."""
        freed = {ordinal for hold in expiring for ordinal in _ordinals(hold.seats)}
        for zone in zones:
            for ordinal in self._seats_of(zone):
                seat = Pair(zone, ordinal)
                together = [seat, *self.event.paired.get(ordinal, ())]
                free = [each for each in together if each.value in freed or self._seat_state(each.value) in "wa"]
                free = free[:count]
                if self._wheelchairs([seat]) and seat in free and len(free) == count:
                    return tuple(sorted(free))
        return ()

    def decline_companions(self, hold_id: UUID, user_id: UUID, now_ms: int) -> AdminReply:  # noqa: PLR0911 - one return per kind of answer, in order of precedence.
        hold = self.holds.get(hold_id)
        if hold is None:
            return self._refuse_change(Status.HOLD_NOT_FOUND, now_ms)
        if hold.user_id != user_id:
            return self._refuse_change(Status.NOT_HOLD_OWNER, now_ms)
        if hold.state == RELEASED:
            return self._refuse_change(Status.HOLD_RELEASED, now_ms)
        if hold.state == EXPIRED or hold.is_overdue(now_ms):
            return self._refuse_change(Status.HOLD_EXPIRED, now_ms)
        wheelchairs = self._wheelchairs(hold.seats)
        if not wheelchairs:
            return self._refuse_change(Status.SEAT_NOT_FOUND, now_ms)
        if hold.declined:
            return AdminReply(Status.REPEATED, now_ms, self.position(hold.seq), wheelchairs)
        self.seq += 1
        hold.declined, hold.seq = True, self.seq
        return AdminReply(Status.DONE, now_ms, self.position(self.seq), wheelchairs)

    def _choose(
        self, zones: Sequence[int], count: int, expiring: Collection[Hold], categories: Collection[SeatCategory]
    ) -> tuple[Pair, ...]:
        """The seats that the rules choose in the zones as they are once some holds have ended."""
        freed = {ordinal for hold in expiring for ordinal in _ordinals(hold.seats)}
        stretches = [
            without_others(self.event, self.event.zones[zone], self._draw(zone, freed), categories) for zone in zones
        ]
        choice = choose_seats(stretches, Wish.under(self.event.document.policy, count))
        if not choice:
            return ()
        zone = self.event.zones[zones[choice.zone]]
        return tuple(Pair(zone.index, zone.first + place) for place in choice.places)

    def _draw(self, zone: int, freed: Collection[int]) -> bytes:
        """A zone's stretch of the map."""
        stretch = self.event.zones[zone]
        bytes_of = (
            "."
            if ordinal in freed and ordinal not in self.event.paired
            else self._seat_state(ordinal)
            if ordinal in self.event.seat_at
            else "|"
            for ordinal in range(stretch.first, stretch.last + 1)
        )
        return "".join(bytes_of).encode()

    def _make_room_and_place(
        self,
        holder: Holder,
        seats: tuple[Pair, ...],
        quantities: tuple[Pair, ...],
        expiring: list[Hold],
        now_ms: int,
    ) -> HoldReply:
        """Overdue holds make way: those on the seats, and all of them where a zone lacks room."""
        wanted = _units(seats, quantities)
        if self._lacking(wanted):
            expiring = _unique([*expiring, *self._overdue(now_ms)])
        lacking = self._lacking(wanted, expiring)
        if lacking:
            return self._refuse(Refusal(Status.BLOCK_AT_CAPACITY, quantities=lacking), now_ms)
        self._end(expiring, EXPIRED, now_ms)
        return self._reply(Status.DONE, self._place(holder, seats, quantities, now_ms), now_ms)

    def _known_hold(self, holder: Holder, now_ms: int) -> HoldReply:
        hold = self.holds[holder.hold_id]
        if (hold.user_id, hold.holder.fingerprint) != (holder.user_id, holder.fingerprint):
            return self._refuse(Refusal(Status.HOLD_ID_REUSED), now_ms)
        if hold.state == RELEASED:
            return self._refuse(Refusal(Status.HOLD_RELEASED), now_ms)
        if hold.state == EXPIRED or hold.is_overdue(now_ms):
            return self._refuse(Refusal(Status.HOLD_EXPIRED), now_ms)
        return self._reply(Status.REPEATED, hold, now_ms)

    def _admission(self, event: CompiledEvent, now_ms: int) -> Refusal | None:
        if event.version != self.event.version:
            return Refusal(Status.STALE_CONFIG)
        if event.document.state == EventState.CANCELLED:
            return Refusal(Status.EVENT_UNAVAILABLE)
        if event.document.state not in (EventState.PUBLISHED, EventState.LIVE):
            return Refusal(Status.EVENT_NOT_AVAILABLE)
        if now_ms < event.opens_ms:
            return Refusal(Status.EVENT_SALES_CLOSED, lifts_ms=event.opens_ms)
        if event.closes_ms and now_ms > event.closes_ms:
            return Refusal(Status.EVENT_SALES_CLOSED)
        return None

    def _misplaced(self, seats: tuple[Pair, ...], quantities: tuple[Pair, ...]) -> Refusal | None:
        """Seats in a zone that has none, quantities of a zone that has seats, zones that do not exist."""
        with_seats = {zone.index for zone in self.event.zones if zone.length}
        without = {zone.index for zone in self.event.zones} - with_seats
        wrong = [Pair(zone, units) for zone, units in _units(seats, ()).items() if zone not in with_seats]
        wrong += [pair for pair in quantities if pair.zone not in without]
        return Refusal(Status.SEAT_NOT_FOUND, quantities=tuple(wrong)) if wrong else None

    def _obstacle(self, seats: tuple[Pair, ...], holder: Holder, now_ms: int) -> Refusal | None:
        """The gravest reason why some of the seats cannot be had, and the seats it concerns."""
        reasons: dict[Status, list[Pair]] = {}
        for seat in seats:
            hold = self.taken.get(seat.value)
            if seat.value not in self.event.seat_at:
                reasons.setdefault(Status.SEAT_NOT_FOUND, []).append(seat)
            elif self._seat_state(seat.value) in "sb":
                reasons.setdefault(Status.SEAT_NOT_AVAILABLE, []).append(seat)
            elif hold and hold.is_live(now_ms) and hold.user_id != holder.user_id:
                reasons.setdefault(Status.SEAT_HELD_BY_ANOTHER_USER, []).append(seat)
            elif not (hold and hold.is_live(now_ms)) and self._is_kept(seat.value, holder.user_id, seats, now_ms):
                reasons.setdefault(Status.SEAT_NOT_AVAILABLE, []).append(seat)
        if not reasons:
            return None
        worst = min(reasons)
        held = worst == Status.SEAT_HELD_BY_ANOTHER_USER
        if held:
            lifts_ms = max(self.taken[seat.value].ends_ms for seat in reasons[worst])
        else:
            lifts_ms = NEVER_MS if "s" in [self._seat_state(seat.value) for seat in reasons[worst]] else 0
        return Refusal(worst, lifts_ms, seats=tuple(reasons[worst]))

    @staticmethod
    def _is_own(hold: Hold, holder: Holder, now_ms: int) -> bool:
        return hold.is_live(now_ms) and hold.user_id == holder.user_id

    def _orphaning(self, seats: tuple[Pair, ...]) -> Refusal | None:
        """Seats that would be left alone by these, where that is refused and their row is not almost sold."""
        if not self.event.document.policy.orphan_avoidance_strict:
            return None
        due = _unique(self.taken[ordinal] for ordinal in _ordinals(seats) if ordinal in self.taken)
        free = {ordinal for hold in due for ordinal in _ordinals(hold.seats)} - self.event.paired.keys()
        free |= {ordinal for ordinal in self.event.seat_at if self._seat_state(ordinal) == "."}
        left = free - _ordinals(seats)
        orphans = []
        # Whoever takes what was nobody's neighbour leaves nobody alone.
        for seat in (each for each in seats if each.value in free):
            for beside in (seat.value - 1, seat.value + 1):
                row = self.event.row_around(beside)
                alone = beside in left and not {beside - 1, beside + 1} & left
                if alone and 10 * len(free.intersection(row)) >= len(row):
                    orphans.append(Pair(seat.zone, beside))
        return Refusal(Status.LEAVES_ORPHAN, seats=tuple(sorted(set(orphans)))) if orphans else None

    def _over_limit(self, event: CompiledEvent, holder: Holder, units: int, now_ms: int) -> Refusal | None:
        policy = event.document.policy
        window_ms = policy.rate_limit_seconds * 1000
        of_user = [hold for hold in self.holds.values() if hold.user_id == holder.user_id]
        at_address = [hold for hold in self.holds.values() if hold.holder.address == holder.address]
        for limit, holds, status in (
            (policy.max_holds_per_user, of_user, Status.USER_LIMIT_EXCEEDED),
            (policy.max_holds_per_ip if holder.address else None, at_address, Status.ADDRESS_LIMIT_EXCEEDED),
        ):
            live = [hold for hold in holds if hold.is_live(now_ms)]
            if limit and sum(hold.units for hold in live) + units > limit:
                return Refusal(status, lifts_ms=min((hold.ends_ms for hold in live), default=0))

        recent = [hold for hold in of_user if hold.created_ms > now_ms - window_ms]
        excess = sum(hold.units for hold in recent) + units - policy.rate_limit_seats
        if not policy.rate_limit_seats or excess <= 0:
            return None
        for hold in recent:
            excess -= hold.units
            if excess <= 0:
                return Refusal(Status.RATE_LIMIT_EXCEEDED, lifts_ms=hold.created_ms + window_ms)
        return Refusal(Status.RATE_LIMIT_EXCEEDED)

    def _refuse(self, refusal: Refusal, now_ms: int) -> HoldReply:
        nowhere = self.position(0)
        return HoldReply(refusal.status, None, refusal.lifts_ms, now_ms, nowhere, refusal.seats, refusal.quantities)

    def _reply(self, status: Status, hold: Hold, now_ms: int) -> HoldReply:
        until_ms = hold.ends_ms if hold.state == HELD else 0
        return HoldReply(status, hold.hold_id, until_ms, now_ms, self.position(hold.seq), hold.seats, hold.quantities)

    # What becomes of holds.

    def extend_holds(
        self,
        hold_ids: Sequence[UUID],
        *,
        user_id: UUID,
        key: str,
        extension_ms: int,
        total_ms: int,
        checkout: str,
        now_ms: int,
    ) -> HoldsReply:
        if not _well_formed_ids(hold_ids):
            return self._refuse_holds(Status.INVALID_REQUEST, (), now_ms)
        found = [self.holds.get(hold_id) for hold_id in hold_ids]
        outcomes = tuple(self._extendable(hold, user_id, checkout, now_ms) for hold in found)
        for refusal in (
            Status.HOLD_NOT_FOUND,
            Status.NOT_HOLD_OWNER,
            Status.HOLD_SOLD,
            Status.HOLD_RELEASED,
            Status.HOLD_EXPIRED,
            Status.HOLD_IN_CHECKOUT,
        ):
            if refusal in outcomes:
                return self._refuse_holds(refusal, outcomes, now_ms)
        holds = [hold for hold in found if hold]
        if all(hold.extension == key for hold in holds):
            ends = tuple(hold.ends_ms for hold in holds)
            last = self.position(max(hold.seq for hold in holds))
            return HoldsReply(Status.REPEATED, now_ms, last, outcomes, ends_ms=ends)

        ends = tuple(_extended(hold, key, extension_ms, total_ms, checkout) for hold in holds)
        if not checkout and all(end == hold.ends_ms for hold, end in zip(holds, ends, strict=True)):
            return HoldsReply(Status.EXTENSION_LIMIT, now_ms, self.position(0), outcomes, ends_ms=ends)
        self.seq += 1
        for hold, end in zip(holds, ends, strict=True):
            hold.ends_ms, hold.seq, hold.extension, hold.checkout = end, self.seq, key, checkout or hold.checkout
        return HoldsReply(Status.DONE, now_ms, self.position(self.seq), outcomes, ends_ms=ends)

    @staticmethod
    def _extendable(hold: Hold | None, user_id: UUID, checkout: str, now_ms: int) -> Status:
        if hold is None:
            return Status.HOLD_NOT_FOUND
        if hold.user_id != user_id:
            return Status.NOT_HOLD_OWNER
        if hold.state != HELD or hold.is_overdue(now_ms):
            return ENDED.get(hold.state, Status.HOLD_EXPIRED)
        return Status.HOLD_IN_CHECKOUT if hold.checkout not in ("", checkout) else Status.DONE

    def release_holds(
        self, hold_ids: Sequence[UUID], user_id: UUID | None, reason: str, checkout: str, now_ms: int
    ) -> HoldsReply:
        if not _well_formed_ids(hold_ids):
            return self._refuse_holds(Status.INVALID_REQUEST, (), now_ms)
        found = [self.holds.get(hold_id) for hold_id in hold_ids]
        if user_id and any(hold and hold.user_id != user_id for hold in found):
            return self._refuse_holds(Status.NOT_HOLD_OWNER, (), now_ms)
        outcomes = tuple(self._releasable(hold, reason, checkout, now_ms) for hold in found)
        judged = [(hold, outcome) for hold, outcome in zip(found, outcomes, strict=True) if hold]
        lapsed = [hold for hold, outcome in judged if hold.state == HELD and outcome is Status.HOLD_EXPIRED]
        released = [hold for hold, outcome in judged if hold.state == HELD and outcome is Status.DONE]
        given_up = [hold for hold, outcome in judged if hold.state == EXPIRED and outcome is Status.DONE]
        ending = [hold for hold in found if hold in lapsed or hold in released]
        untouched = [hold.seq for hold, _ in judged if hold not in ending]
        unknown = checkout and None in found
        self._end(lapsed, EXPIRED, now_ms)
        if given_up or unknown:
            self.seq += 1
            for hold in given_up:
                hold.state, hold.seq, hold.forget_at_ms = RELEASED, self.seq, now_ms + self.retention_ms
        self._end(released, RELEASED, now_ms)
        order = (
            Status.DONE,
            Status.HOLD_NOT_FOUND,
            Status.HOLD_SOLD,
            Status.HOLD_RELEASED,
            Status.HOLD_IN_CHECKOUT,
            Status.HOLD_EXPIRED,
        )
        return HoldsReply(
            min(outcomes, key=order.index),
            now_ms,
            self.position(self.seq if ending or given_up or unknown else max(untouched, default=0)),
            outcomes,
            seats=tuple(seat for hold in ending if hold for seat in hold.seats),
            quantities=tuple(pair for hold in ending if hold for pair in hold.quantities),
        )

    @staticmethod
    def _releasable(hold: Hold | None, reason: str, checkout: str, now_ms: int) -> Status:
        if hold is None:
            return Status.DONE if checkout else Status.HOLD_NOT_FOUND
        if hold.state in (SOLD, RELEASED):
            return ENDED[hold.state]
        if checkout:
            return Status.DONE if hold.checkout == checkout else Status.HOLD_IN_CHECKOUT
        if hold.state == EXPIRED or hold.is_overdue(now_ms):
            return Status.HOLD_EXPIRED
        return Status.HOLD_IN_CHECKOUT if hold.checkout and reason != "not_persisted" else Status.DONE

    def confirm_holds(self, hold_ids: Sequence[UUID], sale: str, user_id: UUID | None, now_ms: int) -> HoldsReply:
        if not _well_formed_ids(hold_ids):
            return self._refuse_holds(Status.INVALID_REQUEST, (), now_ms)
        if self.event.document.state == EventState.CANCELLED:
            return self._refuse_holds(Status.EVENT_UNAVAILABLE, (), now_ms)
        found = [self.holds.get(hold_id) for hold_id in hold_ids]
        outcomes = [self._sellable(hold, sale, user_id) for hold in found]
        selling = [hold for hold, outcome in zip(found, outcomes, strict=True) if hold and outcome == Status.DONE]
        again = [hold for hold in selling if hold.state == EXPIRED]
        named = [hold for hold in found if hold]
        lost = self._lost_seats(selling, named, now_ms)
        for i, hold in enumerate(found):
            if hold and lost.get(hold.hold_id):
                outcomes[i] = Status.SEATS_LOST
        for refusal in (
            Status.HOLD_NOT_FOUND,
            Status.NOT_HOLD_OWNER,
            Status.HOLD_RELEASED,
            Status.HOLD_SOLD,
            Status.HOLD_IN_CHECKOUT,
        ):
            if refusal in outcomes:
                return self._refuse_holds(refusal, tuple(outcomes), now_ms)

        wanted: Counter[int] = Counter()
        for hold in again:
            wanted += _units(hold.seats, hold.quantities)
        in_the_way = (self.taken.get(ordinal) for hold in again for ordinal in _ordinals(hold.seats))
        expiring = _unique(hold for hold in in_the_way if hold and hold.is_overdue(now_ms) and hold not in named)
        if self._lacking(wanted, expiring):
            expiring = _unique([*expiring, *(hold for hold in self._overdue(now_ms) if hold not in named)])
        lacking = self._lacking(wanted, expiring)
        if lacking or any(lost.values()):
            seats = tuple(seat for hold in again for seat in lost[hold.hold_id])
            nowhere = self.position(0)
            return HoldsReply(Status.SEATS_LOST, now_ms, nowhere, tuple(outcomes), seats=seats, quantities=lacking)
        if not selling:
            last = self.position(max(hold.seq for hold in found if hold))
            return HoldsReply(Status.REPEATED, now_ms, last, tuple(outcomes))
        self._end(expiring, EXPIRED, now_ms)
        self._sell(selling, sale, now_ms)
        return HoldsReply(
            Status.DONE,
            now_ms,
            self.position(self.seq),
            tuple(outcomes),
            seats=tuple(seat for hold in selling for seat in hold.seats),
            quantities=tuple(pair for hold in selling for pair in hold.quantities),
        )

    @staticmethod
    def _sellable(hold: Hold | None, sale: str, user_id: UUID | None) -> Status:
        if hold is None:
            return Status.HOLD_NOT_FOUND
        if user_id and hold.user_id != user_id:
            return Status.NOT_HOLD_OWNER
        if hold.state == RELEASED:
            return Status.HOLD_RELEASED
        if hold.state == SOLD:
            return Status.REPEATED if hold.checkout == sale else Status.HOLD_SOLD
        return Status.HOLD_IN_CHECKOUT if hold.checkout not in ("", sale) else Status.DONE

    def _lost_seats(self, selling: list[Hold], named: list[Hold], now_ms: int) -> dict[UUID, list[Pair]]:
        """The seats that an expired hold cannot have back: taken by others, or promised to another hold of the sale."""
        lost: dict[UUID, list[Pair]] = {}
        promised: set[int] = set()
        for hold in selling:
            if hold.state == EXPIRED:
                lost[hold.hold_id] = []
                for seat in hold.seats:
                    owner = self.taken.get(seat.value)
                    makes_way = owner is None or (owner.is_overdue(now_ms) and owner not in named)
                    is_kept = self._is_kept(seat.value, hold.user_id, hold.seats, now_ms)
                    if seat.value in self.blocked or seat.value in promised or is_kept or not makes_way:
                        lost[hold.hold_id].append(seat)
                promised |= _ordinals(hold.seats)
        return lost

    def expire_holds(self, limit: int, now_ms: int) -> ExpireReply:
        due = self._overdue(now_ms)[:limit]
        self._end(due, EXPIRED, now_ms)
        ended = [hold for hold in self.holds.values() if hold.state != HELD and hold.forget_at_ms <= now_ms]
        ended = sorted(ended, key=lambda hold: (hold.forget_at_ms, hold.hold_id.bytes))[:limit]
        for hold in ended:
            del self.holds[hold.hold_id]
            if hold.state == SOLD:
                self.forgotten_sales.append(hold)
        position = self.position(self.seq if due else 0)
        return ExpireReply(Status.DONE, now_ms, position, len(due), len(ended))

    def _refuse_holds(self, status: Status, outcomes: tuple[Status, ...], now_ms: int) -> HoldsReply:
        return HoldsReply(status, now_ms, self.position(0), outcomes)

    # Administration.

    def block_seats(
        self,
        event: CompiledEvent,
        seats: Sequence[tuple[int, int]],
        quantities: Sequence[tuple[int, int]],
        now_ms: int,
    ) -> AdminReply:
        wish, places = _pairs(seats), _pairs(quantities)
        if not _well_formed_change(wish, places) or any(pair.value == 0 for pair in places):
            return self._refuse_change(Status.INVALID_REQUEST, now_ms)
        if event.version != self.event.version:
            return self._refuse_change(Status.STALE_CONFIG, now_ms)
        reasons: dict[Status, tuple[list[Pair], list[Pair]]] = {}
        for seat in wish:
            if reason := self._unblockable_seat(seat, now_ms):
                reasons.setdefault(reason, ([], []))[0].append(seat)
        for pair in places:
            if reason := self._unblockable_places(pair):
                reasons.setdefault(reason, ([], []))[1].append(pair)
        if reasons:
            return self._refuse_change(min(reasons), now_ms, *reasons[min(reasons)])

        changed = tuple(seat for seat in wish if seat.value not in self.blocked)
        if not changed and not places:
            return AdminReply(Status.REPEATED, now_ms, self.position(self.seq))
        self._end(_unique(self.taken[each] for each in _ordinals(changed) if each in self.taken), EXPIRED, now_ms)
        self.seq += 1
        self.blocked |= _ordinals(changed)
        self.blocked_places += _units((), places)
        return AdminReply(Status.DONE, now_ms, self.position(self.seq), changed, places)

    def _unblockable_seat(self, seat: Pair, now_ms: int) -> Status | None:
        if self._unknown_seat(seat):
            return Status.SEAT_NOT_FOUND
        hold = self.taken.get(seat.value)
        if hold and hold.state == SOLD:
            return Status.SEAT_NOT_AVAILABLE
        return Status.SEAT_HELD_BY_ANOTHER_USER if hold and hold.is_live(now_ms) else None

    def _unblockable_places(self, pair: Pair) -> Status | None:
        if self._unknown_places(pair):
            return Status.SEAT_NOT_FOUND
        return Status.BLOCK_AT_CAPACITY if pair.value > self._room(pair.zone) else None

    def unblock_seats(
        self,
        event: CompiledEvent,
        seats: Sequence[tuple[int, int]],
        quantities: Sequence[tuple[int, int]],
        now_ms: int,
    ) -> AdminReply:
        wish, places = _pairs(seats), _pairs(quantities)
        if not _well_formed_change(wish, places):
            return self._refuse_change(Status.INVALID_REQUEST, now_ms)
        if event.version != self.event.version:
            return self._refuse_change(Status.STALE_CONFIG, now_ms)
        unknown = [seat for seat in wish if self._unknown_seat(seat)]
        unknown_places = [pair for pair in places if self._unknown_places(pair)]
        if unknown or unknown_places:
            return self._refuse_change(Status.SEAT_NOT_FOUND, now_ms, unknown, unknown_places)

        changed = tuple(seat for seat in wish if seat.value in self.blocked)
        fewer = (Pair(pair.zone, min(pair.value, self.blocked_places[pair.zone])) for pair in places)
        returned = tuple(pair for pair in fewer if pair.value)
        if not changed and not returned:
            return AdminReply(Status.REPEATED, now_ms, self.position(self.seq))
        self.seq += 1
        self.blocked -= _ordinals(changed)
        self.blocked_places -= _units((), returned)
        return AdminReply(Status.DONE, now_ms, self.position(self.seq), changed, returned)

    def _unknown_seat(self, seat: Pair) -> bool:
        in_zone = seat.zone < len(self.event.zones) and self.event.zones[seat.zone].length > 0
        return seat.value not in self.event.seat_at or not in_zone

    def _unknown_places(self, pair: Pair) -> bool:
        return pair.zone >= len(self.event.zones) or self.event.zones[pair.zone].length > 0

    def set_event_state(self, event: CompiledEvent, changed: CompiledEvent, now_ms: int) -> AdminReply:
        if changed.version == self.event.version:
            return AdminReply(Status.REPEATED, now_ms, self.position(self.seq))
        if event.version != self.event.version:
            return self._refuse_change(Status.STALE_CONFIG, now_ms)
        self.seq += 1
        self.event = changed
        return AdminReply(Status.DONE, now_ms, self.position(self.seq))

    def _refuse_change(
        self, status: Status, now_ms: int, seats: Iterable[Pair] = (), quantities: Iterable[Pair] = ()
    ) -> AdminReply:
        return AdminReply(status, now_ms, self.position(0), tuple(seats), tuple(quantities))


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Pair, ...]:
    return tuple(Pair(zone, value) for zone, value in pairs)


def _ordinals(seats: Iterable[Pair]) -> set[int]:
    return {seat.value for seat in seats}


def _units(seats: Iterable[Pair], quantities: Iterable[Pair]) -> Counter[int]:
    """Units by zone, zones in the order they were first named."""
    units = Counter(seat.zone for seat in seats)
    for zone, quantity in quantities:
        units[zone] += quantity
    return units


def _unique(holds: Iterable[Hold]) -> list[Hold]:
    return list({hold.hold_id: hold for hold in holds}.values())


def _well_formed(seats: tuple[Pair, ...], quantities: tuple[Pair, ...]) -> bool:
    """Something is asked for, nothing twice, and no quantity of nothing."""
    zones = [pair.zone for pair in quantities] + [zone for zone, _ in groupby(sorted(seat.zone for seat in seats))]
    distinct = len(set(zones)) == len(zones) and len(_ordinals(seats)) == len(seats)
    return bool(seats or quantities) and distinct and all(pair.value for pair in quantities)


def _well_formed_change(seats: tuple[Pair, ...], quantities: tuple[Pair, ...]) -> bool:
    distinct = len(_ordinals(seats)) == len(seats) and len({pair.zone for pair in quantities}) == len(quantities)
    return bool(seats or quantities) and distinct and len(seats) <= MAX_ADMIN_SEATS


def _well_formed_ids(hold_ids: Sequence[UUID]) -> bool:
    return 1 <= len(hold_ids) <= MAX_OPERATION_HOLDS and len(set(hold_ids)) == len(hold_ids)


def _extended(hold: Hold, key: str, extension_ms: int, total_ms: int, checkout: str) -> int:
    """When a hold ends after an extension: never later than its total allows, never earlier than before."""
    if hold.extension == key or (checkout and hold.checkout):
        return hold.ends_ms
    return max(hold.ends_ms, min(hold.ends_ms + extension_ms, hold.created_ms + total_ms))
