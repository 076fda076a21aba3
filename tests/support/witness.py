"""Buyers of a test: what they ask of front ends and are told, and whether all of it is true in the end."""

import time
from collections.abc import Awaitable
from typing import Any
from uuid import UUID, uuid4

from holdfast.engine.acks import Ack
from holdfast.engine.backend import Backend, Holder, HoldReply, HoldsReply
from holdfast.engine.errors import BackendError
from holdfast.engine.service import HoldService
from holdfast.loadtest.chaos.checker import Limits, Rule, check
from holdfast.loadtest.chaos.history import Call, Operation, Told
from holdfast.loadtest.chaos.stored import read_stored
from support.fallback import Fallback

CALL_LIMIT_S = 12.0
EXTENSION_MS = 60_000


class Witness:
    """Calls services as buyers do, one call at a time, and keeps the history that the chaos runs' checker reads."""

    def __init__(self, shards: Fallback) -> None:
        self._shards = shards
        self._began_s = time.monotonic()
        self._began_at = time.time()
        self.calls: list[Call] = []

    async def hold(
        self, service: HoldService | Backend, seat: str, user: UUID, hold_id: UUID | None = None, **options: Any
    ) -> str:
        """Ask for a seat; returns the hold that the buyer was told of, or nothing."""
        holder = Holder(hold_id=hold_id or uuid4(), user_id=user)
        event = self._shards.event
        call = await self._ask(
            Operation.RESERVE, service.hold_seats(event, holder, seats=[event.seats[seat]], **options), seat=seat
        )
        return call.told[0].hold_id if call.told else ""

    async def extend(self, service: HoldService | Backend, hold: str, user: UUID) -> Call:
        """Ask for more time."""
        return await self._ask(
            Operation.EXTEND,
            service.extend_holds(
                self._shards.event,
                [UUID(hold)],
                user_id=user,
                key=str(uuid4()),
                extension_ms=EXTENSION_MS,
                total_ms=10 * EXTENSION_MS,
            ),
            hold=hold,
        )

    async def release(self, service: HoldService | Backend, hold: str, user: UUID) -> Call:
        """Give a hold up."""
        answer = service.release_holds(self._shards.event, [UUID(hold)], user_id=user, reason="user_cancelled")
        return await self._ask(Operation.RELEASE, answer, hold=hold)

    async def violations(self) -> set[Rule]:
        """The rules that were broken, by what was told and what Postgres has."""
        capacities = {zone.document.zone_id: zone.document.capacity for zone in self._shards.event.zones}
        stored = await read_stored(self._fetch, self._shards.event.event_id, self.calls, self._since)
        found = check(self.calls, stored, Limits(CALL_LIMIT_S, capacities))
        return {violation.rule for violation in found}

    async def _ask(
        self, operation: Operation, answer: Awaitable[HoldReply | HoldsReply], *, seat: str = "", hold: str = ""
    ) -> Call:
        started_s = self._now_s
        told: tuple[Told, ...] = ()
        error, retry_after = "", False
        try:
            reply = await answer
        except BackendError as failure:
            status, error, retry_after = 503, str(failure), True
        else:
            status, error = int(reply.status.http), reply.status.name.lower()
            retry_after = reply.status.retryable
            if reply.status.succeeded and isinstance(reply, HoldReply):
                told = (Told(str(reply.hold_id), self._since(reply.until_ms / 1000), (seat,)),)
            elif reply.status.succeeded and operation is Operation.EXTEND:
                told = (Told(hold, self._since(reply.ends_ms[0] / 1000)),)
        call = Call(
            client=0,
            operation=operation,
            front_end=0,
            started_s=started_s,
            ended_s=self._now_s,
            status=status,
            error=error,
            retry_after=retry_after,
            holds=(hold,) if hold else (),
            told=told,
            durable=Ack.POSTGRES,
        )
        self.calls.append(call)
        return call

    async def _fetch(self, statement: str, *arguments: object) -> list[Any]:
        async with self._shards.servers.pool.acquire() as connection:
            return list(await connection.fetch(statement, *arguments))

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _since(self, timestamp_s: float) -> float:
        return timestamp_s - self._began_at
