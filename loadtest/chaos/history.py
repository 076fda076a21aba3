"""What buyers asked, what they were told, and when: one record per call, all on one monotonic clock.

The records say nothing of how Holdfast works inside, so the checker cannot be wrong in the same way.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.engine.acks import Ack


class Operation(StrEnum):
    """What a buyer may ask for."""

    RESERVE = "reserve"
    HOLD = "hold"
    BEST = "best"
    EXTEND = "extend"
    RELEASE = "release"
    CHECKOUT = "checkout"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    LOOK = "look"
    WATCH = "watch"


HOLDING = frozenset({Operation.RESERVE, Operation.HOLD, Operation.BEST})
# After asking for one of these a buyer can no longer count on the holds, whatever the answer was.
GIVING_UP = frozenset({Operation.RELEASE, Operation.FAIL, Operation.CANCEL})


class Told(msgspec.Struct, frozen=True):
    """What an answer says of one hold. `until_s` is on the clock of the history."""

    hold_id: str
    until_s: float
    seats: tuple[str, ...] = ()
    places: Mapping[str, int] = {}


class Call(msgspec.Struct, frozen=True):
    """One call of one buyer. Without a status there was no answer, and `error` says why.

    `holds` are the holds the call was about, `told` what a good answer said of them; `durable` how that is stored.
    """

    client: int
    operation: Operation
    front_end: int
    started_s: float
    ended_s: float
    status: int | None
    error: str = ""
    retry_after: bool = False
    wanted: str = ""
    holds: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    durable: Ack = Ack.POSTGRES
    repeat: bool = False

    @property
    def good(self) -> bool:
        return self.status is not None and self.status < 300

    def __str__(self) -> str:
        answer = f"{self.status} {self.error}".strip() if self.status else f"no answer ({self.error})"
        about = " ".join([*self.holds, *(f"{each.hold_id} until {each.until_s:.3f}" for each in self.told)])
        again = " again" if self.repeat else ""
        return (
            f"{self.started_s:9.3f} to {self.ended_s:9.3f}  buyer {self.client} by front end {self.front_end}: "
            f"{self.operation}{again} {self.wanted} -> {answer} {about}".rstrip()
        )


class Interval(msgspec.Struct, frozen=True, order=True):
    """A time during which a buyer could count on a hold."""

    start_s: float
    end_s: float
    hold_id: str


class Life:
    """All that buyers were told of one hold."""

    def __init__(self, hold_id: str, client: int) -> None:
        self.hold_id = hold_id
        self.client = client
        self.seats: tuple[str, ...] = ()
        self.places: Mapping[str, int] = {}
        self.until_s = 0.0
        self.sold = False
        self.paid_for = False
        self.given_up = False
        self._closed: list[Interval] = []
        self._open_since_s: float | None = None
        self._given_up_at_s = -math.inf

    @property
    def intervals(self) -> list[Interval]:
        """When the hold was live for sure, in order."""
        still = self._open_since_s is not None
        open_one = [Interval(self._open_since_s or 0.0, self.end_s, self.hold_id)] if still else []
        return [each for each in (*self._closed, *open_one) if each.end_s > each.start_s]

    @property
    def end_s(self) -> float:
        """When a hold that nobody gave up ends."""
        return math.inf if self.sold else self.until_s

    def is_live(self, at_s: float) -> bool:
        return any(each.start_s <= at_s < each.end_s for each in self.intervals)

    def acknowledge(self, call: Call, told: Told) -> None:
        if call.started_s < self._given_up_at_s:
            # It was asked for before it was given up: the answer says nothing about now.
            return
        # An answer may name some of the seats only: the one that was asked for, say, and is held already.
        self.seats = tuple(dict.fromkeys((*self.seats, *told.seats)))
        self.places = {**self.places, **told.places}
        self.until_s = max(self.until_s, told.until_s)
        if self._open_since_s is None:
            self._open_since_s = call.ended_s
        self.given_up = False

    def pay(self, call: Call) -> None:
        self.paid_for = True
        if not call.good:
            return
        if self._open_since_s is not None and self.until_s < call.ended_s:
            # Paid for too late: between its end and the sale others may have had the seats.
            self._closed.append(Interval(self._open_since_s, self.until_s, self.hold_id))
            self._open_since_s = None
        self.sold, self.given_up = True, False
        if self._open_since_s is None:
            self._open_since_s = call.ended_s

    def give_up(self, call: Call) -> None:
        self._given_up_at_s, self.given_up = call.started_s, True
        if self._open_since_s is not None:
            self._closed.append(Interval(self._open_since_s, min(self.end_s, call.started_s), self.hold_id))
            self._open_since_s = None


def lives(calls: Iterable[Call], durable: frozenset[Ack] = frozenset({Ack.POSTGRES})) -> dict[str, Life]:
    """The holds that were acknowledged with the durability that counts, by id."""
    found: dict[str, Life] = {}
    # A buyer gives up when they ask to, and knows of a hold when the answer is there.
    moments = [(call.started_s, 0, call) for call in calls if call.operation in GIVING_UP]
    moments += [(call.ended_s, 1, call) for call in calls if call.operation not in GIVING_UP]
    for _, answered, call in sorted(moments, key=lambda moment: moment[:2]):
        if not answered:
            for hold_id in call.holds:
                if hold_id in found:
                    found[hold_id].give_up(call)
            continue
        if call.operation is Operation.COMPLETE:
            for hold_id in call.holds:
                if hold_id in found:
                    found[hold_id].pay(call)
            continue
        if call.good and call.durable in durable:
            for told in call.told:
                if told.hold_id not in found and call.operation not in HOLDING:
                    continue
                found.setdefault(told.hold_id, Life(told.hold_id, call.client)).acknowledge(call, told)
    return found


def told_by(operation: Operation, data: Mapping[str, Any], began_at: float) -> Iterator[Told]:
    """What the data of a good answer says of holds. `began_at` is the start of the history in seconds since 1970."""

    def until_s(held: Mapping[str, Any]) -> float:
        return datetime.fromisoformat(held["held_until"]).timestamp() - began_at

    if operation is Operation.RESERVE:
        yield Told(data["hold_id"], until_s(data), seats=(data["seat_id"],))
    elif operation in (Operation.HOLD, Operation.BEST, Operation.EXTEND):
        seats = tuple(seat["seat_id"] for seat in data["seats"])
        places = {each["zone_id"]: each["quantity"] for each in data["quantities"]}
        if data.get("held_until"):
            yield Told(data["hold_id"], until_s(data), seats, places)
    elif operation is Operation.CHECKOUT:
        for place in data["seats"]:
            if place["status"] == "active":
                yield Told(place["hold_id"], until_s(place))


def write_history(path: Path, calls: Iterable[Call]) -> None:
    """Write calls as JSON lines."""
    encoder = msgspec.json.Encoder()
    path.write_bytes(b"".join(encoder.encode(call) + b"\n" for call in calls))


def read_history(path: Path) -> list[Call]:
    """Read what `write_history` wrote."""
    decoder = msgspec.json.Decoder(Call)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]
