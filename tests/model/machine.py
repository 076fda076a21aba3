"""A random workload of every operation, each answer and the whole state compared with the oracle after each step."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID
from zlib import crc32

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model.oracle import EXPIRED, HELD, Oracle
from model.replay import Replay
from model.rig import RETENTION_MS, Rig

from holdfast.engine.audit import Caller
from holdfast.engine.backend import Holder
from holdfast.engine.layout import (
    CompiledEvent,
    EventDocument,
    EventState,
    Policy,
    SeatCategory,
    SeatDocument,
    ZoneDocument,
    ZoneType,
    compile_event,
)
from holdfast.engine.records import Pair
from holdfast.engine.status import Status
from support.engine import accessible, seats

MINUTE_MS = 60_000
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
PAST = datetime(2000, 1, 1, tzinfo=UTC)

ORGANIZATION = UUID(int=0xA)
USERS = tuple(UUID(int=0x100 + i) for i in range(3))
ADDRESSES = ("", "10.0.0.1", "10.0.0.2")
NOBODYS_HOLD = UUID(int=0xDEAD)
META = Caller().meta()
FIRST_HOLD = 0x1000


def _with_aisle(places: tuple[SeatDocument, ...], *aisle: str) -> tuple[SeatDocument, ...]:
    return tuple(
        msgspec.structs.replace(seat, category=SeatCategory.AISLE) if seat.seat_id in aisle else seat for seat in places
    )


# Small, so that requests collide: eight seats, six seats of which four may be sold, six places.
STALLS, BOX, FLOOR, NO_ZONE = 0, 1, 2, 7
DOCUMENT = EventDocument(
    event_id=UUID(int=0xE),
    name="Model night",
    zones=(
        ZoneDocument(
            "stalls",
            ZoneType.RESERVED_SEATING,
            "Stalls",
            8,
            _with_aisle(accessible(seats(2, 4, "S"), "SB-1", "SB-2"), "SA-1", "SA-2"),
        ),
        ZoneDocument(
            "box",
            ZoneType.VIP_RESERVED,
            "Box",
            4,
            _with_aisle(accessible(seats(2, 3, "B"), "BB-1", "BB-2", "BB-3"), "BA-3"),
        ),
        ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 6),
    ),
    state=EventState.LIVE,
    blocked_seat_ids=frozenset({"SB-4"}),
)
SEATS = tuple(compile_event(ORGANIZATION, DOCUMENT).seats.values())
PAIRED = tuple(seat for seat in SEATS if seat.value in compile_event(ORGANIZATION, DOCUMENT).paired)
NO_SEATS = (Pair(STALLS, SEATS[3].value + 1), Pair(BOX, 10_000), Pair(FLOOR, 0), Pair(NO_ZONE, 0))
POLICIES = (
    Policy(rate_limit_seats=0, max_seats_per_booking=100),
    Policy(rate_limit_seats=9, max_seats_per_booking=5),
    Policy(rate_limit_seats=0, max_seats_per_booking=6, max_holds_per_user=5, max_holds_per_ip=7),
    Policy(rate_limit_seats=0, max_seats_per_booking=6, orphan_avoidance_strict=True, max_group_split=1),
    Policy(rate_limit_seats=0, max_seats_per_booking=6, group_adjacency_strict=True),
    Policy(
        rate_limit_seats=0,
        companion_release_occupancy_threshold=40,
        max_wheelchair_seats_per_booking=2,
        accessibility_audit_enabled=False,
    ),
    Policy(rate_limit_seats=0, min_hold_ttl_minutes=2, adaptive_hold_from_percent=20),
)

users = st.sampled_from(USERS)
addresses = st.sampled_from(ADDRESSES)
counts = st.integers(1, 4)
seldom_a_user = st.one_of(st.none(), st.none(), users)
several_seats = st.lists(st.sampled_from(SEATS), min_size=1, max_size=4, unique=True)
quantities = st.lists(st.tuples(st.just(FLOOR), counts), max_size=1)
# Holds on record, counted from the latest backwards.
picks = st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True)
seldom = st.integers(0, 4).map(lambda number: number == 4)


class EngineMachine(RuleBasedStateMachine):
    """Drives whatever backend `open_rig` gives. Each run has a server state of its own."""

    open_rig: ClassVar[Callable[[CompiledEvent], AbstractAsyncContextManager[Rig]]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.requests: list[tuple[str, Holder, dict[str, Any]]] = []
        self.closed_requests = 0
        self.past_ms = 0

    @initialize(policy=st.sampled_from(POLICIES))
    def open_event(self, policy: Policy) -> None:
        document = msgspec.structs.replace(DOCUMENT, policy=policy)
        self.event = self.outdated_event = compile_event(ORGANIZATION, document)
        opening = self.stack.enter_async_context(type(self).open_rig(self.event))
        self.backend, self.inspector = self.runner.run(opening)
        self.oracle = Oracle(self.event, RETENTION_MS, self.inspector.position)
        self.replay = Replay(self.event)

    def teardown(self) -> None:
        with self.runner:
            self.runner.run(self.stack.aclose())

    # Holding.

    @rule(user=users, address=addresses, wish=several_seats, places=quantities, stale=seldom)
    def hold(self, user: UUID, address: str, wish: list[Pair], places: list[tuple[int, int]], stale: bool) -> None:
        self._request("hold_seats", user, address, {"seats": wish, "quantities": places}, stale)

    @rule(user=users, address=addresses, count=counts)
    def hold_places(self, user: UUID, address: str, count: int) -> None:
        self._request("hold_seats", user, address, {"seats": [], "quantities": [(FLOOR, count)]})

    @rule(
        user=users,
        address=addresses,
        zones=st.sampled_from(((STALLS,), (BOX,), (BOX,), (BOX, STALLS), (STALLS, BOX), (FLOOR,), (BOX, FLOOR))),
        count=st.integers(0, 5),
        accessible=seldom,
        categories=st.sampled_from(((), (), (SeatCategory.AISLE,), (SeatCategory.STANDARD,))),
    )
    def allocate(
        self,
        *,
        user: UUID,
        address: str,
        zones: tuple[int, ...],
        count: int,
        accessible: bool,
        categories: tuple[SeatCategory, ...],
    ) -> None:
        wish = {"zones": zones, "count": count, "categories": categories}
        if accessible:
            wish = {"zones": zones, "count": min(count, 3), "accessible": True}
        self._request("allocate_seats", user, address, wish)

    @rule(user=users, wish=st.lists(st.sampled_from(PAIRED), min_size=1, max_size=2, unique=True))
    def hold_paired(self, user: UUID, wish: list[Pair]) -> None:
        """Wheelchair and companion seats, which others may want too."""
        self._request("hold_seats", user, "", {"seats": wish, "quantities": []})

    @precondition(lambda self: self.requests)
    @rule(pick=picks, nonsense=seldom, user=seldom_a_user)
    def decline(self, pick: list[int], nonsense: bool, user: UUID | None) -> None:
        hold_id = self._pick(pick, nonsense)[-1]
        who = user or self._owner(hold_id)
        reply = self.runner.run(self.backend.decline_companions(self.event, hold_id, user_id=who))
        expected = self.oracle.decline_companions(hold_id, who, reply.now_ms)
        assert reply == expected, _difference("decline_companions", reply, expected)

    @rule(
        user=users,
        zones=st.sampled_from(((STALLS,), (BOX, STALLS), (FLOOR,))),
        count=st.integers(0, 4),
        near=st.sampled_from(SEATS),
        take=st.booleans(),
    )
    def offer(self, user: UUID, zones: tuple[int, ...], count: int, near: Pair, take: bool) -> None:
        self._request("offer_seats", user, "", {"zones": zones, "count": count, "near": near.value, "take": take})

    @rule(
        user=users,
        wish=st.lists(st.sampled_from((*SEATS, *NO_SEATS)), max_size=5),
        places=st.lists(st.tuples(st.sampled_from((BOX, FLOOR, NO_ZONE)), st.sampled_from((0, 1, 10**9))), max_size=2),
    )
    def hold_nonsense(self, user: UUID, wish: list[Pair], places: list[tuple[int, int]]) -> None:
        self._request("hold_seats", user, "", {"seats": wish, "quantities": places})

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0, 10), user=st.none() | users, content=st.none() | several_seats)
    def hold_again(self, pick: int, user: UUID | None, content: list[Pair] | None) -> None:
        """The same hold id once more: the same request, or as another user, or with other content."""
        name, holder, wish = self.requests[-1 - pick % len(self.requests)]
        if user:
            holder = msgspec.structs.replace(holder, user_id=user)
        if content:
            name, wish = "hold_seats", {"seats": content, "quantities": []}
            holder = msgspec.structs.replace(holder, fingerprint=_fingerprint(wish))
        self._ask(name, holder, wish, self.event)

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0, 5), user=users)
    def hold_the_same(self, pick: int, user: UUID) -> None:
        """What an earlier request wanted, under a hold id of its own."""
        name, holder, wish = self.requests[-1 - pick % len(self.requests)]
        self._request(name, user, holder.address, wish)

    @precondition(lambda self: self.oracle.live())
    @rule(pick=st.integers(0, 5), wish=several_seats, places=quantities)
    def hold_more(self, pick: int, wish: list[Pair], places: list[tuple[int, int]]) -> None:
        """The seats a user has already, and others."""
        live = list(self.oracle.live())
        hold = self.oracle.holds[live[-1 - pick % len(live)]]
        seats = list(dict.fromkeys((*hold.seats, *wish)))
        self._request("hold_seats", hold.user_id, hold.holder.address, {"seats": seats, "quantities": places})

    def _request(self, name: str, user: UUID, address: str, wish: dict[str, Any], stale: bool = False) -> None:
        # An event that does not sell refuses everything: two such answers will do.
        self.closed_requests = 0 if self._sells() else self.closed_requests + 1
        if self.closed_requests > 2:
            self._change(False, state=EventState.LIVE, sale_start=None, sale_end=None)
        number = len(self.requests)
        holder = Holder(
            hold_id=UUID(int=FIRST_HOLD + number),
            user_id=user,
            fingerprint=_fingerprint(wish),
            address=address,
            cart=f"cart {number}",
            ttl_ms=5 * MINUTE_MS if number % 3 == 0 else None,
            meta=META,
        )
        self.requests.append((name, holder, wish))
        self._ask(name, holder, wish, self.outdated_event if stale else self.event)

    def _ask(self, name: str, holder: Holder, wish: dict[str, Any], event: CompiledEvent) -> None:
        reply = self.runner.run(getattr(self.backend, name)(event, holder, **wish))
        expected = getattr(self.oracle, name)(event, holder, **wish, now_ms=reply.now_ms)
        # Which of several zones without room is named first does not matter.
        reply, expected = (
            msgspec.structs.replace(each, quantities=tuple(sorted(each.quantities))) for each in (reply, expected)
        )
        assert reply == expected, _difference(name, reply, expected)

    # What becomes of holds.

    @precondition(lambda self: self.requests)
    @rule(
        picks=picks,
        nonsense=seldom,
        user=seldom_a_user,
        key=st.sampled_from(("k1", "k2", "k3")),
        minutes=st.sampled_from((1, 5, 100)),
        checkout=st.sampled_from(("", "", "c1", "c2")),
    )
    def extend(
        self, *, picks: list[int], nonsense: bool, user: UUID | None, key: str, minutes: int, checkout: str
    ) -> None:
        ids = self._pick(picks, nonsense)
        request: dict[str, Any] = {
            "user_id": user or self._owner(ids[0]),
            "key": key,
            "extension_ms": minutes * MINUTE_MS,
            "total_ms": 20 * MINUTE_MS,
            "checkout": checkout,
        }
        reply = self.runner.run(self.backend.extend_holds(self.event, ids, **request))
        expected = self.oracle.extend_holds(ids, **request, now_ms=reply.now_ms)
        assert reply == expected, _difference("extend_holds", reply, expected)

    @precondition(lambda self: self.requests)
    @rule(
        picks=picks,
        nonsense=seldom,
        user=seldom_a_user,
        reason=st.sampled_from(("user_cancelled", "payment_failed", "not_persisted")),
        checkout=st.sampled_from(("", "", "c1", "c2")),
    )
    def release(self, *, picks: list[int], nonsense: bool, user: UUID | None, reason: str, checkout: str) -> None:
        ids = self._pick(picks, nonsense)
        request = {"user_id": user, "reason": reason, "checkout": checkout}
        reply = self.runner.run(self.backend.release_holds(self.event, ids, **request))
        expected = self.oracle.release_holds(ids, *request.values(), reply.now_ms)
        assert reply == expected, _difference("release_holds", reply, expected)

    @precondition(lambda self: self.requests)
    @rule(
        picks=picks,
        nonsense=seldom,
        user=seldom_a_user,
        sale=st.sampled_from(("s1", "s2", "c1")),
    )
    def confirm(self, picks: list[int], nonsense: bool, user: UUID | None, sale: str) -> None:
        self._confirm(self._pick(picks, nonsense), user, sale)

    @precondition(lambda self: self.oracle.holds)
    @rule(pick=st.integers(0, 5), sale=st.sampled_from(("s1", "s2")))
    def confirm_rivals(self, pick: int, sale: str) -> None:
        """Several holds that had the same seat, one after the other, in one sale."""
        unsold = [hold for hold in self.oracle.holds.values() if hold.state in (HELD, EXPIRED)]
        seats = [seat for hold in unsold for seat in hold.seats]
        contested = [seat for seat in dict.fromkeys(seats) if seats.count(seat) > 1] or seats
        if contested:
            seat = contested[pick % len(contested)]
            self._confirm([hold.hold_id for hold in unsold if seat in hold.seats], None, sale)

    def _confirm(self, ids: list[UUID], user: UUID | None, sale: str) -> None:
        reply = self.runner.run(self.backend.confirm_holds(self.event, ids, sale=sale, user_id=user))
        expected = self.oracle.confirm_holds(ids, sale, user, reply.now_ms)
        # Which of several full zones comes first is nobody's business.
        reply = msgspec.structs.replace(reply, quantities=tuple(sorted(reply.quantities)))
        expected = msgspec.structs.replace(expected, quantities=tuple(sorted(expected.quantities)))
        assert reply == expected, _difference("confirm_holds", reply, expected)

    @rule(limit=st.sampled_from((1, 2, 100)))
    def expire(self, limit: int) -> None:
        reply = self.runner.run(self.backend.expire_holds(ORGANIZATION, DOCUMENT.event_id, limit=limit))
        expected = self.oracle.expire_holds(limit, reply.now_ms)
        assert reply == expected, _difference("expire_holds", reply, expected)

    def _pick(self, picks: list[int], nonsense: bool) -> list[UUID]:
        """Ids of holds on record; seldom with one among them that nobody has made, or one twice."""
        known = list(self.oracle.holds) or [NOBODYS_HOLD]
        ids = list(dict.fromkeys(known[-1 - pick % len(known)] for pick in picks))
        return [*ids, NOBODYS_HOLD if len(ids) % 2 else ids[0]] if nonsense else ids

    def _owner(self, hold_id: UUID) -> UUID:
        hold = self.oracle.holds.get(hold_id)
        return hold.user_id if hold else USERS[0]

    # Time.

    @precondition(lambda self: self.oracle.live())
    @rule(pick=st.integers(0, 30), reap=st.booleans())
    def let_lapse(self, pick: int, reap: bool) -> None:
        live = list(self.oracle.live())
        self._lapse(live[-1 - pick % len(live)], reap)

    @precondition(lambda self: self.oracle.live())
    @rule(pick=st.integers(0, 30), user=users, again=st.booleans(), reap=st.booleans())
    def let_lapse_to_another(self, pick: int, user: UUID, again: bool, reap: bool) -> None:
        """What one user loses another one wants at once, and may lose again."""
        live = list(self.oracle.live())
        lost = self.oracle.holds[live[-1 - pick % len(live)]]
        self._lapse(lost.hold_id, reap)
        self._request("hold_seats", user, "", {"seats": list(lost.seats), "quantities": list(lost.quantities)})
        _, holder, _ = self.requests[-1]
        if again and holder.hold_id in self.oracle.live():
            self._lapse(holder.hold_id, reap)

    def _lapse(self, hold_id: UUID, reap: bool) -> None:
        self.past_ms += 1
        self.oracle.holds[hold_id].ends_ms = self.past_ms
        self.runner.run(self.inspector.lapse(hold_id, self.past_ms))
        if reap:
            self.expire(limit=100)

    @precondition(lambda self: self.oracle.holds)
    @rule(pick=st.integers(0, 30))
    def let_age(self, pick: int) -> None:
        """Out of the window of the rate limit, and past the total that extensions may reach."""
        holds = list(self.oracle.holds.values())
        hold = holds[pick % len(holds)]
        hold.created_ms -= 30 * MINUTE_MS
        self.runner.run(self.inspector.backdate(hold.hold_id, hold.created_ms))

    @precondition(lambda self: self.inspector.forgets and self.oracle.ended())
    @rule(pick=st.integers(0, 30))
    def let_outlive_its_record(self, pick: int) -> None:
        ended = list(self.oracle.ended())
        hold = self.oracle.holds[ended[pick % len(ended)]]
        self.past_ms += 1
        hold.forget_at_ms = self.past_ms
        self.runner.run(self.inspector.outdate(hold.hold_id, hold.forget_at_ms))

    # Administration.

    @rule(
        blocking=st.booleans(),
        wish=st.lists(st.sampled_from((*SEATS, *SEATS, *SEATS, *NO_SEATS)), max_size=2, unique=True),
        places=st.lists(st.tuples(st.sampled_from((FLOOR, FLOOR, BOX, NO_ZONE)), st.integers(0, 3)), max_size=2),
        stale=seldom,
    )
    def administer(self, blocking: bool, wish: list[Pair], places: list[tuple[int, int]], stale: bool) -> None:
        name = "block_seats" if blocking else "unblock_seats"
        self._administer(name, wish, places, self.outdated_event if stale else self.event)

    @rule(count=counts)
    def block_places(self, count: int) -> None:
        self._administer("block_seats", [], [(FLOOR, count)], self.event)

    @precondition(lambda self: self.oracle.blocked or self.oracle.blocked_places)
    @rule()
    def unblock_all(self) -> None:
        wish = [seat for seat in SEATS if seat.value in self.oracle.blocked]
        self._administer("unblock_seats", wish, [(FLOOR, 100)], self.event)

    def _administer(self, name: str, wish: list[Pair], places: list[tuple[int, int]], event: CompiledEvent) -> None:
        reply = self.runner.run(getattr(self.backend, name)(event, seats=wish, quantities=places))
        expected = getattr(self.oracle, name)(event, wish, places, reply.now_ms)
        assert reply == expected, _difference(name, reply, expected)

    @rule(
        state=st.sampled_from((EventState.LIVE, EventState.LIVE, *EventState)),
        window=st.sampled_from(((None, None), (PAST, FUTURE), (None, None), (FUTURE, None), (None, PAST))),
        sizes=st.tuples(st.sampled_from((8, 7, 3)), st.sampled_from((4, 6, 4, 1)), st.sampled_from((6, 9, 6, 2))),
        stale=seldom,
    )
    def change_event(
        self,
        state: EventState,
        window: tuple[datetime | None, datetime | None],
        sizes: tuple[int, int, int],
        stale: bool,
    ) -> None:
        resized = zip(self.event.document.zones, sizes, strict=True)
        zones = tuple(msgspec.structs.replace(zone, capacity=capacity) for zone, capacity in resized)
        self._change(stale, state=state, sale_start=window[0], sale_end=window[1], zones=zones)

    def _sells(self) -> bool:
        document = self.event.document
        return document.state.selling == 1 and document.sale_start != FUTURE and document.sale_end != PAST

    def _change(self, stale: bool, **changes: Any) -> None:
        base = self.outdated_event if stale else self.event
        document = msgspec.structs.replace(base.document, **changes)
        changed = compile_event(ORGANIZATION, document)
        reply, event = self.runner.run(self.backend.set_event_state(base, document))
        expected = self.oracle.set_event_state(base, changed, reply.now_ms)
        assert reply == expected, _difference("set_event_state", reply, expected)
        assert event.version == (changed if reply.status.succeeded else base).version
        if reply.status == Status.DONE:
            self.outdated_event, self.event = self.event, event

    # What must be true at any time.

    @rule(user=users)
    def read_holds(self, user: UUID) -> None:
        """A user's holds: none of anybody else, none of the live ones missing, each as it is on record."""
        reading = self.runner.run(self.backend.read_holds(ORGANIZATION, DOCUMENT.event_id, user_id=user))
        found = {hold.hold_id: (hold.ends_ms, hold.record) for hold in reading.holds}
        own = {
            hold.hold_id: (hold.ends_ms if hold.state == HELD else 0, hold.record())
            for hold in self.oracle.holds.values()
            if hold.user_id == user
        }
        assert reading.status == Status.DONE
        assert found.items() <= own.items()
        assert {each for each in own if self.oracle.holds[each].is_live(reading.now_ms)} <= found.keys()

    @invariant()
    def state_is_as_expected(self) -> None:
        self.runner.run(self._compare())

    async def _compare(self) -> None:
        oracle = self.oracle
        found = await self.inspector.snapshot(self.replay.seq)
        reading = await self.backend.read_event(ORGANIZATION, DOCUMENT.event_id, want_map=True)

        assert found.map == oracle.map()
        assert reading.map == oracle.shown_map(reading.now_ms)
        for ordinal, hold in oracle.taken.items():
            assert found.owners[ordinal] == hold.hold_id, f"seat {ordinal} has another owner"
        assert reading.zones == oracle.zones()
        assert (reading.version, reading.state) == (oracle.event.version, oracle.event.document.state.value)
        assert found.live == oracle.live()
        assert found.ended == oracle.ended()
        assert found.records == {hold_id: hold.record() for hold_id, hold in oracle.holds.items()}
        assert found.last_seq == reading.position.seq == oracle.seq

        if found.log is None:
            return
        self.replay.read(found.log)
        assert self.replay.seq == oracle.seq
        assert (self.replay.map, self.replay.zones()) == (found.map, reading.zones)
        assert self.replay.live.keys() == found.live.keys()
        assert (self.replay.version, self.replay.state) == (reading.version, reading.state)


def _fingerprint(wish: dict[str, Any]) -> str:
    """A digest of a request's content, as the front end makes one."""
    return f"{crc32(repr(wish).encode()):08x}"


def _difference(name: str, reply: object, expected: object) -> str:
    return f"{name} answered\n  {reply}\nbut the rules say\n  {expected}"
