"""The first answers to requests with an Idempotency-Key, kept for a day.

Whoever comes first claims the answer, works it out without holding on to a connection, and keeps it. Whoever comes
while that lasts looks again until it is there. A process that dies with a claim delays repeats by the lease; they then
do the work again, which changes nothing, because what they do is known by ids that follow from the key.
"""

import asyncio
from time import monotonic
from uuid import UUID, uuid4

import msgspec

from holdfast.engine.errors import Overloaded, Unavailable
from holdfast.persistence.pool import POSTGRES_ERRORS, Pool, borrowed
from holdfast.persistence.sql import query

KEPT_S = 24 * 3600.0

# Longer than any request takes, so that no two work on the same answer.
LEASE_S = 30.0

# How long a repeat waits for the first answer before it is told to come again.
PATIENCE_S = 8.0

_FIRST_LOOK_S = 0.01
_LOOK_S = 0.25
_FORGET_BATCH = 1000


class Request(msgspec.Struct, frozen=True):
    """A request that may be repeated: whose, what for, under which key, and the digest of its content."""

    organization_id: UUID
    user_id: UUID
    path: str
    key: str
    fingerprint: bytes

    @property
    def place(self) -> tuple[UUID, UUID, str, str]:
        return self.organization_id, self.user_id, self.path, self.key


class Answer(msgspec.Struct, frozen=True):
    """What was answered."""

    status: int
    content_type: str
    body: bytes


class Claim(msgspec.Struct, frozen=True):
    """The right and duty to work an answer out."""

    claim_id: UUID


class OtherContent(msgspec.Struct, frozen=True):
    """The key was used for something else."""


class KeptAnswers:
    """Answers in Postgres. Every method may raise a BackendError and nothing else."""

    def __init__(self, pool: Pool, *, lease_s: float = LEASE_S, patience_s: float = PATIENCE_S) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._patience_s = patience_s

    async def begin(self, request: Request) -> Answer | Claim | OtherContent:
        """The first answer, waited for if somebody is at it; or a claim, if nobody is."""
        claim, give_up_at, pause_s = Claim(uuid4()), monotonic() + self._patience_s, _FIRST_LOOK_S
        while True:
            found = await self._look(request, claim)
            if found is not None:
                return found
            if monotonic() > give_up_at:
                raise Overloaded("the first request under this key is still being answered")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_S)

    async def keep(self, request: Request, claim: Claim, answer: Answer) -> None:
        """Keep what was worked out."""
        values = (answer.status, answer.content_type, answer.body)
        await self._execute("keep_answer", *request.place, claim.claim_id, *values)

    async def give_up(self, request: Request, claim: Claim) -> None:
        """Nothing that lasts came of it: let a repeat try."""
        await self._execute("give_up_answer", *request.place, claim.claim_id)

    async def _look(self, request: Request, claim: Claim) -> Answer | Claim | OtherContent | None:
        try:
            async with borrowed(self._pool) as connection:
                mine = await connection.fetchval(
                    query("claim_answer"), *request.place, request.fingerprint, claim.claim_id, self._lease_s
                )
                if mine is not None:
                    return claim
                row = await connection.fetchrow(query("find_answer"), *request.place)
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"kept answers cannot be read: {error!r}") from error
        if row is not None and row["fingerprint"] != request.fingerprint:
            return OtherContent()
        if row is None or row["status"] is None:
            return None
        return Answer(row["status"], row["content_type"], row["body"])

    async def _execute(self, name: str, *arguments: object) -> None:
        try:
            async with borrowed(self._pool) as connection:
                await connection.execute(query(name), *arguments)
        except POSTGRES_ERRORS as error:
            raise Unavailable(f"an answer cannot be kept: {error!r}") from error


async def forget_answers(pool: Pool, age_s: float = KEPT_S) -> int:
    """Forget what was answered so long ago; returns how many answers that were."""
    forgotten = 0
    async with pool.acquire() as connection:
        while rows := await connection.fetch(query("forget_answers"), age_s, _FORGET_BATCH):
            forgotten += len(rows)
            if len(rows) < _FORGET_BATCH:
                break
    return forgotten
