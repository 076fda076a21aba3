"""The keeper's part in changes of mode: it notices a server that lost its shards, and brings shards back to Redis.

Shards that were never in service are recovered at once. Those that Postgres had to take over are brought back when
Redis has been healthy for a while and every live front end reaches it, unless an operator has taken them from Redis:
then only an operator brings them back.
"""

import asyncio
import logging
import time

import asyncpg
from redis.exceptions import RedisError

from holdfast.engine.cancellation import honour_cancellation
from holdfast.engine.epochs import Mode
from holdfast.engine.errors import BackendError
from holdfast.engine.keys import HEALTH
from holdfast.engine.shards import find_broken, read_incarnation
from holdfast.persistence.ballot import FRONT_END, KEEPER, Ballot, list_voters
from holdfast.persistence.fence import ShardControl, read_controls
from holdfast.persistence.pool import POSTGRES_ERRORS
from holdfast.persistence.recovery import RecoveryError, remove_old_epochs
from holdfast.persistence.service import Servers, bring_back
from holdfast.persistence.transitions import Cause, Moved, declare_shards, state_of

INTERVAL_S = 0.5

_ACTOR = "holdfast keeper"

_log = logging.getLogger(__name__)


class Recoverer:
    """Looks after the modes of all shards. Any number may run; one at a time recovers a shard."""

    def __init__(self, servers: Servers, *, recover_after_s: float) -> None:
        self._servers = servers
        self._recover_after_s = recover_after_s
        self._ballot = Ballot(servers.pool, KEEPER)
        self._incarnation = b""
        self._healthy_since: float | None = None
        self._tidied: dict[int, int] = {}

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        """Go on until cancelled. Servers that do not answer are tried again."""
        try:
            while True:
                honour_cancellation()
                try:
                    await self.step()
                except (RecoveryError, Moved, asyncpg.LockNotAvailableError) as error:
                    _log.warning("a shard was not recovered, trying again: %s", error)
                except (BackendError, RedisError, *POSTGRES_ERRORS) as error:
                    _log.warning("modes are not looked after, trying again: %s", str(error) or type(error).__name__)
                await asyncio.sleep(interval_s)
        finally:
            await self._ballot.withdraw()

    async def step(self) -> None:
        """Look once at every shard, and do what is to be done."""
        async with self._servers.pool.acquire() as connection:
            await declare_shards(connection, self._servers.shards)
            controls = await read_controls(connection, range(self._servers.shards))
        broken = await self._look(controls)
        against = {shard: (controls[shard].epoch, reason) for shard, reason in broken.items()}
        await self._ballot.cast(against, reaches_redis=self._healthy_since is not None)
        if self._healthy_since is None:
            return
        for control in controls.values():
            if control.mode == "recovering":
                await self._recover(control, "first start")
            elif control.mode == "db" and not control.pinned and await self._may_return():
                await self._recover(control, f"Redis has been healthy for {self._recover_after_s:g} s")
        await self._tidy()

    async def _look(self, controls: dict[int, ShardControl]) -> dict[int, str]:
        """What is wrong with shards on the server; notes since when the same server has answered."""
        served = {shard: control.epoch for shard, control in controls.items() if control.mode == "redis"}
        try:
            incarnation = await read_incarnation(self._servers.wire)
            broken = await find_broken(self._servers.wire, served)
            healthy = await self._servers.redis.set(HEALTH, 1, ex=60)
        except (BackendError, RedisError, OSError) as error:
            if self._healthy_since is not None or not self._incarnation:
                _log.warning("Redis cannot be used: %s", error)
            self._incarnation, self._healthy_since = b"away", None
            return {}
        if incarnation != self._incarnation or not healthy:
            self._incarnation, self._healthy_since = incarnation, time.monotonic()
        return broken

    async def _may_return(self) -> bool:
        """Whether Redis has been well for long enough, and not only to this process."""
        if self._healthy_since is None or time.monotonic() - self._healthy_since < self._recover_after_s:
            return False
        async with self._servers.pool.acquire() as connection:
            voters = await list_voters(connection)
        return all(voter.reaches_redis for voter in voters if voter.kind == FRONT_END)

    async def _recover(self, control: ShardControl, reason: str) -> None:
        before = state_of(control)
        assert before.mode is not Mode.REDIS, "only shards that Redis does not serve are recovered"
        level = logging.INFO if before.mode is Mode.RECOVERING else logging.WARNING
        await bring_back(self._servers, control.shard, before, Cause(reason, _ACTOR, level=level))

    async def _tidy(self) -> None:
        """Remove what epochs that are over have left in Redis, once after each change."""
        async with self._servers.pool.acquire() as connection:
            controls = await read_controls(connection, range(self._servers.shards))
        served = {shard: control.epoch for shard, control in controls.items() if control.mode == "redis"}
        if served != self._tidied:
            removed = await remove_old_epochs(self._servers.redis, served)
            self._tidied = served
            if removed:
                _log.info("removed %d keys of epochs that are over", removed)
