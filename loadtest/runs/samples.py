"""Looks at the stack while a scenario runs: how full the event is, how far Postgres is behind, who serves."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec
from redis.exceptions import RedisError

from holdfast.engine.keys import shard_of
from holdfast.loadtest.chaos.stack import Stack
from holdfast.loadtest.chaos.traffic import Arena
from holdfast.loadtest.cpu_times import busy_seconds, cpu_seconds
from holdfast.persistence.fence import read_controls
from holdfast.persistence.occupancy import occupancy
from holdfast.persistence.pool import connect
from holdfast.persistence.status import shard_status

SAMPLE_S = 0.5
OTHERS = "other programs"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look. What could not be seen is None; `modes` counts the shards in each mode, `cpu` is in cores."""

    at_s: float
    held: int | None = None
    sold: int | None = None
    free: int | None = None
    lag_entries: int | None = None
    lag_s: float | None = None
    modes: dict[str, int] = {}
    mode: str = ""
    cpu: dict[str, float] = {}


class Sampler:
    """Takes samples of one event, and of the stack and other processes, until it is cancelled."""

    def __init__(self, stack: Stack, arena: Arena, others: Mapping[str, int], began_at: float) -> None:
        self._stack = stack
        self._others = others
        self._arena = arena
        self._began_at = began_at
        self._shard = shard_of(arena.event_id, stack.layout.shards)
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Look twice a second, by connections of its own."""
        connection: Any = None
        meter = _Meter({**self._stack.processes, **self._others})
        async with self._stack.client() as client:
            try:
                while True:
                    await asyncio.sleep(SAMPLE_S)
                    seen: dict[str, Any] = {}
                    try:
                        if connection is None:
                            connection = await connect(self._stack.postgres.url, name="loadtest")
                        seen |= await self._look_at_postgres(connection)
                        seen |= await self._look_at_redis(connection, client)
                    except (asyncpg.PostgresError, OSError, TimeoutError):
                        connection = None
                    except RedisError:
                        # It may be away on purpose.
                        pass
                    at_s = time.time() - self._began_at
                    processes = {**self._stack.processes, **self._others}
                    self.samples.append(Sample(at_s=at_s, cpu=meter.read(processes), **seen))
            finally:
                if connection is not None:
                    await connection.close()

    async def _look_at_postgres(self, connection: Any) -> dict[str, Any]:
        total = (await occupancy(connection, self._arena.organization_id, self._arena.event_id)).total
        controls = await read_controls(connection, range(self._stack.layout.shards))
        return {
            "held": total.held,
            "sold": total.sold,
            "free": total.free,
            "modes": dict(Counter(control.mode for control in controls.values())),
            "mode": controls[self._shard].mode,
        }

    async def _look_at_redis(self, connection: Any, client: Any) -> dict[str, Any]:
        control = (await read_controls(connection, [self._shard]))[self._shard]
        if control.mode != "redis":
            return {}
        status = await shard_status(client, control)
        return {"lag_entries": status.lag_entries, "lag_s": status.lag_seconds}


class _Meter:
    """How many cores each process has taken since the last reading, and all that are none of ours."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._at, self._before, self._busy = time.monotonic(), cpu_seconds(processes), busy_seconds()

    def read(self, processes: Mapping[str, int]) -> dict[str, float]:
        now, cpu, busy = time.monotonic(), cpu_seconds(processes), busy_seconds()
        over_s = max(now - self._at, 0.001)
        # A process that was started anew begins at nothing.
        taken = {name: max(0.0, cpu[name] - self._before.get(name, 0.0)) / over_s for name in cpu}
        if busy is not None and self._busy is not None:
            taken[OTHERS] = max(0.0, (busy - self._busy) / over_s - sum(taken.values()))
        self._at, self._before, self._busy = now, cpu, busy
        return taken
