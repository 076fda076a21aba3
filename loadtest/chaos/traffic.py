"""Buyers: they hold, extend, release, pay and change their minds, and write down all they ask and are told.

Who asks for what follows from the seed; how calls interleave is up to the machine, as it is in life.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from uuid import UUID

import aiohttp
import msgspec

from holdfast.engine.acks import Ack
from holdfast.loadtest.buyer_calls import Answer, BuyerCalls, Request
from holdfast.loadtest.chaos.history import Call, Operation, Told, told_by

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


class Buyer:
    """One user with a browser: makes one call at a time."""

    def __init__(
        self, number: int, arena: Arena, tokens: tuple[str, str], chance: random.Random, history: "Recorder"
    ) -> None:
        self._number = number
        self._arena = arena
        self._chance = chance
        self._calls = BuyerCalls(arena.event_id, *tokens, lambda: str(UUID(int=chance.getrandbits(128))))
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
            return self._calls.end_checkout(operation, checkout, self._checkouts[checkout])
        free = [hold for hold in self._holds if not any(hold in holds for holds in self._checkouts.values())]
        operation = self._pick(_HABITS if free else _FIRST_HABITS)
        if len(free) > _MAX_HOLDS:
            operation = Operation.RELEASE
        if operation in _FIRST_HABITS:
            return self._holding(operation)
        hold = self._chance.choice(free)
        if operation is Operation.CHECKOUT:
            return self._calls.check_out([hold])
        return self._calls.extend(hold) if operation is Operation.EXTEND else self._calls.release(hold)

    def _pick(self, habits: Mapping[Operation, int]) -> Operation:
        return self._chance.choices(list(habits), list(habits.values()))[0]

    def _holding(self, operation: Operation) -> Request:
        arena, chance = self._arena, self._chance
        if operation is Operation.RESERVE:
            return self._calls.reserve(self._seat())
        if operation is Operation.BEST:
            return self._calls.hold_best(arena.seated_zone, chance.randint(1, 3))
        if chance.random() < 0.3:
            return self._calls.hold_places(arena.open_zone, chance.randint(1, 4))
        return self._calls.hold_seats(sorted({self._seat() for _ in range(chance.randint(2, 3))}))

    def _seat(self) -> str:
        seats = self._arena.seats
        return self._chance.choice(seats[:_HOT_SEATS] if self._chance.random() < _HOT_CHANCE else seats)

    def _remember(self, request: Request, answer: Answer) -> None:
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


class Recorder:
    """Makes the calls and keeps the history. All times are seconds since it was made, which was at `began_at`."""

    def __init__(self, session: aiohttp.ClientSession, front_ends: Sequence[str], limit_s: float) -> None:
        self._session = session
        self._front_ends = front_ends
        self._limit = aiohttp.ClientTimeout(total=limit_s)
        self._began_s = time.monotonic()
        self.began_at = time.time()
        self.calls: list[Call] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def since(self, timestamp_s: float) -> float:
        """A time of day, in seconds since 1970, on the clock of the history."""
        return timestamp_s - self.began_at

    async def ask(self, client: int, chance: random.Random, request: Request, *, repeat: bool = False) -> Answer:
        """Make a call, by any front end, and write it down."""
        front_end = chance.randrange(len(self._front_ends))
        started_s, status, error, data, retry_after = self.now_s, None, "", {}, False
        try:
            async with self._session.request(
                request.method,
                self._front_ends[front_end] + request.path,
                json=request.body,
                headers=request.headers,
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
            told=tuple(told_by(request.operation, data, self.began_at)) if data else (),
            durable=Ack(data.get("durability") or Ack.POSTGRES),
            repeat=repeat,
        )
        self.calls.append(call)
        return Answer(call, data)
