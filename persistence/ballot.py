"""The vote on whether Redis still serves a shard.

Every front end says every second that it is alive, whether it reaches Redis, and which shards it cannot use. A shard is
taken from Redis when all live front ends say so of its current epoch. So one that alone cannot reach Redis answers its
own callers that it is busy, and drags nobody along; the only one there is decides alone. Where no front end is alive,
keepers speak for a shard whose server has lost it.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from datetime import datetime
from uuid import uuid4

import asyncpg
import msgspec

from holdfast.engine.breaker import Opinion
from holdfast.engine.epochs import Mode, ShardState
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, Pool
from holdfast.persistence.sql import query
from holdfast.persistence.transitions import Cause, Moved, Transition, to_db

# A process that has not been heard of for so long no longer counts.
ALIVE_S = 3.0

_REPORT_S = 3.0

FRONT_END = "front end"
KEEPER = "keeper"

_log = logging.getLogger(__name__)


class Voter(msgspec.Struct, frozen=True):
    """A process that is alive, and what it says."""

    kind: str
    name: str
    seen_at: datetime
    reaches_redis: bool
    shards: list[int]
    reasons: list[str]


def process_name(kind: str) -> str:
    """What operators call this process."""
    return f"{kind} {os.getpid()} on {socket.gethostname()}"


class Ballot:
    """The voice of one process."""

    def __init__(self, pool: Pool, kind: str) -> None:
        self._pool = pool
        self._kind = kind
        self._id = uuid4()
        self._pending: dict[tuple[int, int], tuple[str, ...]] = {}
        self.name = process_name(kind)

    async def cast(self, against: Mapping[int, tuple[int, str]], *, reaches_redis: bool) -> list[Transition]:
        """Say what this process sees: epoch and reason of each shard it cannot use. Then act if all agree.

        Returns the changes that this call has made.
        """
        epochs = [epoch for epoch, _ in against.values()]
        reasons = [reason for _, reason in against.values()]
        async with self._pool.acquire() as connection:
            await connection.execute(
                query("cast_vote"), self._id, self._kind, self.name, reaches_redis, list(against), epochs, reasons
            )
        return await self._decide() if against else []

    async def report(self, opinions: Mapping[int, Opinion], reachable: bool) -> None:
        """The same for a monitor, which goes on when Postgres does not answer."""
        against = {shard: (opinion.epoch, opinion.reason) for shard, opinion in opinions.items()}
        try:
            async with asyncio.timeout(_REPORT_S):
                await self.cast(against, reaches_redis=reachable)
        except POSTGRES_ERRORS as error:
            _log.warning("this process cannot say whether it reaches Redis: %s", str(error) or type(error).__name__)

    async def withdraw(self) -> None:
        """Leave the electorate. Whoever cannot say so is forgotten soon."""
        with contextlib.suppress(*POSTGRES_ERRORS):
            async with asyncio.timeout(_REPORT_S), self._pool.acquire() as connection:
                await connection.execute(query("withdraw_voter"), self._id)

    async def _decide(self) -> list[Transition]:
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(query("count_votes"), ALIVE_S)
        changes = []
        for row in rows:
            if len(row["names"]) < row["electorate"]:
                self._wait_for_others(row["shard"], row["epoch"], tuple(row["names"]), row["electorate"])
                continue
            cause = Cause(row["reason"], f"vote of {', '.join(row['names'])}")
            try:
                changes.append(await to_db(self._pool, row["shard"], ShardState(Mode.REDIS, row["epoch"]), cause))
            except Moved:
                # Somebody else has counted the same votes.
                continue
            except asyncpg.LockNotAvailableError:
                _log.warning("shard %d: its writers do not let go, the change is tried again", row["shard"])
        return changes

    def _wait_for_others(self, shard: int, epoch: int, names: tuple[str, ...], electorate: int) -> None:
        if self._pending.get((shard, epoch)) != names:
            self._pending[shard, epoch] = names
            _log.warning(
                "shard %d: %d of %d want it taken from Redis in epoch %d: %s",
                shard,
                len(names),
                electorate,
                epoch,
                ", ".join(names),
            )


async def list_voters(connection: Connection) -> tuple[Voter, ...]:
    """Who is alive, and what they say."""
    return tuple(Voter(**row) for row in await connection.fetch(query("list_voters"), ALIVE_S))
