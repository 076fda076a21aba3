"""Buyers: they hold, extend, release, pay and change their minds, and write down all they ask and are told.

Who asks for what follows from the seed; how calls interleave is up to the machine, as it is in life.
"""

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import aiohttp
import msgspec

from holdfast.engine.acks import Ack
from holdfast.loadtest.chaos.history import Call, Operation, Told

_PAUSE_S = 0.03
_PAUSE_AFTER_BUSY_S = 0.1
_REPEAT_CHANCE = 0.6
_HOT_SEATS = 12
_HOT_CHANCE = 0.5
_MAX_HOLDS = 5

# What a buyer who holds something does next, by how often; one without holds asks for some.
_HABITS = {
    Operation.RESERVE: 34,
    Operation.HOLD: 12,
    Operation.BEST: 10,
    Operation.EXTEND: 8,
    Operation.RELEASE: 16,
    Operation.CHECKOUT: 14,
}
_FIRST_HABITS = {Operation.RESERVE: 60, Operation.HOLD: 20, Operation.BEST: 20}
_AT_THE_TILL = {Operation.COMPLETE: 5, Operation.FAIL: 2, Operation.CANCEL: 3}


class Arena(msgspec.Struct, frozen=True):
    """The event that is fought over."""

    organization_id: UUID
    event_id: UUID
    seats: tuple[str, ...]
    seated_zone: str
    open_zone: str
    capacities: Mapping[str, int]


class Request(msgspec.Struct, frozen=True):
    """One call before it is made. `wanted` names it for readers of the history."""

    operation: Operation
    method: str
    path: str
    body: Mapping[str, Any] | None
    token: str
    wanted: str = ""
    holds: tuple[str, ...] = ()
    key: str = ""


class Buyer:
    """One user with a browser: makes one call at a time."""

    def __init__(
        self, number: int, arena: Arena, tokens: tuple[str, str], chance: random.Random, history: "Recorder"
    ) -> None:
        self._number = number
        self._arena = arena
        self._own_token, self._service_token = tokens
        self._chance = chance
        self._history = history
        self._holds: dict[str, Told] = {}
        self._checkouts: dict[str, tuple[str, ...]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Buy until told to stop."""
        while not stop.is_set():
            request = self._choose()
            answer = await self._history.ask(self._number, self._chance, request)
            busy = answer.call.status is None or answer.call.status >= 500
            if busy and request.key and self._chance.random() < _REPEAT_CHANCE:
                # The outcome is unknown: asking again under the same key finds out.
                await asyncio.sleep(_PAUSE_AFTER_BUSY_S)
                answer = await self._history.ask(self._number, self._chance, request, repeat=True)
                busy = answer.call.status is None or answer.call.status >= 500
            self._remember(request, answer)
            await asyncio.sleep(_PAUSE_AFTER_BUSY_S if busy else self._chance.uniform(0.2, 1.8) * _PAUSE_S)

    def _choose(self) -> Request:
        if self._checkouts and self._chance.random() < 0.5:
            operation = self._pick(_AT_THE_TILL)
            checkout = self._chance.choice(list(self._checkouts))
            return self._at_the_till(operation, checkout)
        free = [hold for hold in self._holds if not any(hold in holds for holds in self._checkouts.values())]
        operation = self._pick(_HABITS if free else _FIRST_HABITS)
        if len(free) > _MAX_HOLDS:
            operation = Operation.RELEASE
        if operation in _FIRST_HABITS:
            return self._holding(operation)
        hold = self._chance.choice(free)
        if operation is Operation.CHECKOUT:
            body = {"event_id": str(self._arena.event_id), "hold_ids": [hold]}
            return self._request(operation, "POST", "/api/checkouts", body, holds=(hold,))
        if operation is Operation.EXTEND:
            return self._request(operation, "POST", f"/api/holds/{hold}/extend", None, holds=(hold,))
        return self._request(operation, "DELETE", f"/api/holds/{hold}", None, holds=(hold,))

    def _pick(self, habits: Mapping[Operation, int]) -> Operation:
        return self._chance.choices(list(habits), list(habits.values()))[0]

    def _holding(self, operation: Operation) -> Request:
        arena, chance = self._arena, self._chance
        if operation is Operation.RESERVE:
            seat = self._seat()
            path = f"/api/events/{arena.event_id}/seats/{seat}/reserve"
            return self._request(operation, "POST", path, {}, wanted=seat)
        path = f"/api/events/{arena.event_id}/holds"
        if operation is Operation.BEST:
            count = chance.randint(1, 3)
            best = {"best_available": {"zone_id": arena.seated_zone, "count": count}}
            return self._request(operation, "POST", path, best, wanted=f"{count} seats")
        if chance.random() < 0.3:
            count = chance.randint(1, 4)
            places = {"quantities": [{"zone_id": arena.open_zone, "quantity": count}]}
            return self._request(operation, "POST", path, places, wanted=f"{count} places")
        seats = sorted({self._seat() for _ in range(chance.randint(2, 3))})
        return self._request(operation, "POST", path, {"seats": seats}, wanted=" ".join(seats))

    def _seat(self) -> str:
        seats = self._arena.seats
        return self._chance.choice(seats[:_HOT_SEATS] if self._chance.random() < _HOT_CHANCE else seats)

    def _at_the_till(self, operation: Operation, checkout: str) -> Request:
        holds = self._checkouts[checkout]
        if operation is Operation.CANCEL:
            return self._request(operation, "POST", f"/api/checkouts/{checkout}/cancel", {}, holds=holds)
        payment = "succeeded" if operation is Operation.COMPLETE else "failed"
        path, body = f"/api/checkouts/{checkout}/complete", {"payment": payment}
        return self._request(operation, "POST", path, body, holds=holds, token=self._service_token)

    def _request(
        self,
        operation: Operation,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        wanted: str = "",
        holds: tuple[str, ...] = (),
        token: str = "",
    ) -> Request:
        key = str(UUID(int=self._chance.getrandbits(128))) if method == "POST" else ""
        return Request(operation, method, path, body, token or self._own_token, wanted, holds, key)

    def _remember(self, request: Request, answer: "Answer") -> None:
        """What the buyer believes from now on."""
        call = answer.call
        for told in call.told:
            self._holds[told.hold_id] = told
        if request.operation is Operation.CHECKOUT and call.good:
            self._checkouts[answer.data["checkout_id"]] = request.holds
            return
        refused = call.status is not None and 400 <= call.status < 500 and call.status != 429
        if request.operation in (*_AT_THE_TILL, Operation.RELEASE) and (call.good or refused):
            for hold in request.holds:
                self._holds.pop(hold, None)
            self._checkouts = {each: holds for each, holds in self._checkouts.items() if holds != request.holds}
        elif refused and request.holds:
            # Expired, or gone: whether that is right is for the checker to say.
            for hold in request.holds:
                self._holds.pop(hold, None)


class Answer(msgspec.Struct, frozen=True):
    """An answer: the record of the call, and the data of a good one."""

    call: Call
    data: Mapping[str, Any]


class Recorder:
    """Makes the calls and keeps the history. All times are seconds since it was made."""

    def __init__(self, session: aiohttp.ClientSession, front_ends: Sequence[str], limit_s: float) -> None:
        self._session = session
        self._front_ends = front_ends
        self._limit = aiohttp.ClientTimeout(total=limit_s)
        self._began_s = time.monotonic()
        self._began_at = time.time()
        self.calls: list[Call] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def since(self, timestamp_s: float) -> float:
        """A time of day, in seconds since 1970, on the clock of the history."""
        return timestamp_s - self._began_at

    async def ask(self, client: int, chance: random.Random, request: Request, *, repeat: bool = False) -> Answer:
        """Make a call, by any front end, and write it down."""
        front_end = chance.randrange(len(self._front_ends))
        headers = {"Authorization": f"Bearer {request.token}"}
        if request.key:
            headers["Idempotency-Key"] = request.key
        started_s, status, error, data, retry_after = self.now_s, None, "", {}, False
        try:
            async with self._session.request(
                request.method,
                self._front_ends[front_end] + request.path,
                json=request.body,
                headers=headers,
                timeout=self._limit,
            ) as response:
                content = await response.json(content_type=None)
                status, retry_after = response.status, "Retry-After" in response.headers
                if status < 300:
                    data = content["data"]
                else:
                    error = content.get("error", "")
        except TimeoutError:
            error = "time limit"
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            error = f"{type(failure).__name__} {failure}".strip()
        call = Call(
            client=client,
            operation=request.operation,
            front_end=front_end,
            started_s=started_s,
            ended_s=self.now_s,
            status=status,
            error=error,
            retry_after=retry_after,
            wanted=request.wanted,
            holds=request.holds,
            told=tuple(self._told(request.operation, data)) if data else (),
            durable=Ack(data.get("durability") or Ack.POSTGRES),
            repeat=repeat,
        )
        self.calls.append(call)
        return Answer(call, data)

    def _told(self, operation: Operation, data: Mapping[str, Any]) -> Iterable[Told]:
        """What a good answer says of holds."""
        if operation is Operation.RESERVE:
            yield Told(data["hold_id"], self._until(data), seats=(data["seat_id"],))
        elif operation in (Operation.HOLD, Operation.BEST, Operation.EXTEND):
            seats = tuple(seat["seat_id"] for seat in data["seats"])
            places = {each["zone_id"]: each["quantity"] for each in data["quantities"]}
            if data.get("held_until"):
                yield Told(data["hold_id"], self._until(data), seats, places)
        elif operation is Operation.CHECKOUT:
            for place in data["seats"]:
                if place["status"] == "active":
                    yield Told(place["hold_id"], self._until(place))

    def _until(self, data: Mapping[str, Any]) -> float:
        return self.since(datetime.fromisoformat(data["held_until"]).timestamp())
