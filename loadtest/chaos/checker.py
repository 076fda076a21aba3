"""Whether what buyers were told is true: the rules, applied to a history and to what Postgres has in the end."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from holdfast.engine.acks import Ack
from holdfast.loadtest.chaos.history import HOLDING, Call, Interval, Life, Operation, lives

# Times told to buyers are cut to milliseconds, and two clocks are compared by reading one after the other.
TOLERANCE_S = 0.05
CONTEXT_CALLS = 12

BUSY = frozenset({429, 503})
REFUSED = frozenset({404, 409, 410})
UNKNOWN_HOLD = frozenset({404, 410})


class Rule(StrEnum):
    """What must hold, whatever happens to the servers."""

    OVERLAP = "no seat has two acknowledged live holds"
    CAPACITY = "no zone has more acknowledged places than it has places"
    SOLD_TWICE = "no seat is sold twice"
    LOST_HOLD = "no acknowledged hold is lost"
    LOST_SALE = "no acknowledged sale is lost"
    ANSWERS = "every call is answered in time, by a result, a refusal, or when to try again"
    COUNTERS = "the books balance"
    RECOVERED = "service recovers"


class Violation(msgspec.Struct, frozen=True):
    """A rule that was broken: how, when on the history's clock, and the calls around it."""

    rule: Rule
    text: str
    at_s: float
    calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.text}", *(f"    {call}" for call in self.calls)])


class StoredHold(msgspec.Struct, frozen=True):
    """A hold as Postgres has it; times are on the history's clock."""

    status: str
    until_s: float
    ended_s: float | None
    units: int
    reason: str = ""


class Stored(msgspec.Struct, frozen=True):
    """What Postgres has of an event: its holds by id, and for every ticket its seat (none for a place) and hold."""

    holds: Mapping[str, StoredHold]
    tickets: Sequence[tuple[str | None, str]]


class Limits(msgspec.Struct, frozen=True):
    """What the checker is to assume: how long a call may take, what a zone holds, whose acknowledgement counts.

    `breaking` are the front ends that were killed, whose connections may break; `early_s` is by how much Redis's clock
    was set ahead, which lets it refuse a buyer that much too early.
    """

    call_s: float
    capacities: Mapping[str, int]
    durable: frozenset[Ack] = frozenset({Ack.POSTGRES})
    breaking: frozenset[int] = frozenset()
    early_s: float = 0.0


def check(calls: Sequence[Call], stored: Stored, limits: Limits) -> list[Violation]:
    """Every violation, the earliest first."""
    told = lives(calls, limits.durable)
    found = [
        *_overlaps(calls, told.values()),
        *_overfull_zones(calls, told.values(), limits.capacities),
        *_sold_twice(calls, told.values(), stored),
        *_lost(calls, told.values(), stored),
        *_wrong_answers(calls, told, limits),
    ]
    return sorted(found, key=lambda violation: violation.at_s)


def _overlaps(calls: Sequence[Call], told: Iterable[Life]) -> list[Violation]:
    by_seat: dict[str, list[Interval]] = {}
    for life in told:
        for seat in life.seats:
            by_seat.setdefault(seat, []).extend(life.intervals)
    found = []
    for seat, intervals in by_seat.items():
        latest: Interval | None = None
        for interval in sorted(intervals):
            if latest and interval.hold_id != latest.hold_id and interval.start_s < latest.end_s - TOLERANCE_S:
                text = f"seat {seat} has the holds {latest.hold_id} and {interval.hold_id} at {interval.start_s:.3f}"
                both = {latest.hold_id, interval.hold_id}
                found.append(Violation(Rule.OVERLAP, text, interval.start_s, _around(calls, both)))
            if latest is None or interval.end_s > latest.end_s:
                latest = interval
    return found


def _overfull_zones(calls: Sequence[Call], told: Iterable[Life], capacities: Mapping[str, int]) -> list[Violation]:
    changes: dict[str, list[tuple[float, int, str]]] = {}
    for life in told:
        for zone, count in life.places.items():
            for each in life.intervals:
                # Giving up counts from a moment earlier, as the overlap of seats does.
                changes.setdefault(zone, []).append((each.start_s, count, life.hold_id))
                if each.end_s - TOLERANCE_S > each.start_s:
                    changes[zone].append((each.end_s - TOLERANCE_S, -count, life.hold_id))
                else:
                    changes[zone].append((each.start_s, -count, life.hold_id))
    found = []
    for zone, moments in changes.items():
        taken = 0
        for at_s, change, hold_id in sorted(moments):
            taken += change
            if taken > capacities[zone] and change > 0:
                text = f"zone {zone} has {taken} acknowledged places at {at_s:.3f} and room for {capacities[zone]}"
                found.append(Violation(Rule.CAPACITY, text, at_s, _around(calls, {hold_id})))
                break
    return found


def _sold_twice(calls: Sequence[Call], told: Iterable[Life], stored: Stored) -> list[Violation]:
    buyers: dict[str, set[str]] = {}
    for life in told:
        if life.sold:
            for seat in life.seats:
                buyers.setdefault(seat, set()).add(life.hold_id)
    tickets: dict[str, int] = {}
    for ticket_seat, hold_id in stored.tickets:
        if ticket_seat is not None:
            buyers.setdefault(ticket_seat, set()).add(hold_id)
            tickets[ticket_seat] = tickets.get(ticket_seat, 0) + 1
    return [
        Violation(Rule.SOLD_TWICE, f"seat {seat} is sold to {', '.join(sorted(holds))}", 0.0, _around(calls, holds))
        for seat, holds in buyers.items()
        if len(holds) > 1 or tickets.get(seat, 0) > 1
    ]


def _lost(calls: Sequence[Call], told: Iterable[Life], stored: Stored) -> list[Violation]:
    found = []
    tickets: dict[str, int] = {}
    for _, hold_id in stored.tickets:
        tickets[hold_id] = tickets.get(hold_id, 0) + 1
    for life in told:
        units = len(life.seats) + sum(life.places.values())
        row = stored.holds.get(life.hold_id)
        rule, text = Rule.LOST_HOLD, ""
        if life.sold:
            rule = Rule.LOST_SALE
            if row is None or row.status != "converted" or tickets.get(life.hold_id, 0) < units:
                status = row.status if row else "missing"
                text = f"{life.hold_id} was sold; Postgres says {status}, with {tickets.get(life.hold_id, 0)} tickets"
        elif row is None:
            text = f"{life.hold_id} was acknowledged, and Postgres does not have it"
        elif row.units < units:
            text = f"{life.hold_id} was acknowledged with {units} seats and places, and Postgres has {row.units}"
        elif not life.given_up:
            text = _spoilt(life, row)
        if text:
            at_s = life.intervals[0].start_s if life.intervals else math.inf
            found.append(Violation(rule, text, at_s, _around(calls, {life.hold_id})))
    return found


def _spoilt(life: Life, row: StoredHold) -> str:
    """How Postgres cuts a hold short that its buyer never gave up."""
    if row.status == "cancelled":
        return f"{life.hold_id} was acknowledged until {life.until_s:.3f}, and is cancelled ({row.reason})"
    if row.status == "active" and row.until_s < life.until_s - TOLERANCE_S:
        return f"{life.hold_id} was acknowledged until {life.until_s:.3f}, and ends at {row.until_s:.3f}"
    if row.status == "expired" and row.ended_s is not None and row.ended_s < life.until_s - TOLERANCE_S:
        return f"{life.hold_id} was acknowledged until {life.until_s:.3f}, and expired at {row.ended_s:.3f}"
    if row.status == "converted" and not life.paid_for:
        return f"{life.hold_id} is sold, and nobody paid for it"
    return ""


def _wrong_answers(calls: Sequence[Call], told: Mapping[str, Life], limits: Limits) -> list[Violation]:
    found = []
    for call in calls:
        text = _wrong_answer(call, limits) or _denial(call, told, limits)
        if text:
            rule = Rule.LOST_HOLD if call.status in UNKNOWN_HOLD else Rule.ANSWERS
            found.append(Violation(rule, text, call.ended_s, _around(calls, set(call.holds), call)))
    return found


def _wrong_answer(call: Call, limits: Limits) -> str:
    took_s = call.ended_s - call.started_s
    if took_s > limits.call_s:
        return f"the answer took {took_s:.1f} s, and {limits.call_s:.1f} s is the limit"
    if call.status is None:
        return "" if call.front_end in limits.breaking else f"there was no answer: {call.error}"
    if call.status in BUSY and not call.retry_after:
        return f"a {call.status} does not say when to try again"
    if call.status >= 300 and call.status not in BUSY | REFUSED:
        return f"the answer was {call.status} {call.error}"
    return ""


def _denial(call: Call, told: Mapping[str, Life], limits: Limits) -> str:
    """Whether a buyer was told that a hold which they could count on is not there."""
    if call.status not in UNKNOWN_HOLD or call.operation in HOLDING:
        return ""
    for hold_id in call.holds:
        life = told.get(hold_id)
        if life is None or life.given_up or life.paid_for or call.operation is Operation.RELEASE:
            continue
        if life.is_live(call.started_s) and life.end_s > call.ended_s + limits.early_s + TOLERANCE_S:
            return f"{hold_id} was acknowledged until {life.until_s:.3f}, and the answer was {call.status}"
    return ""


def _around(calls: Sequence[Call], holds: set[str], centre: Call | None = None) -> tuple[str, ...]:
    """The calls that had to do with these holds, in the order in which they were made."""
    related = [
        call
        for call in calls
        if call is centre or holds & set(call.holds) or any(each.hold_id in holds for each in call.told)
    ]
    related.sort(key=lambda call: call.started_s)
    return tuple(str(call) for call in related[-CONTEXT_CALLS:])
