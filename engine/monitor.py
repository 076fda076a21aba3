"""Looking at Redis from one process, now and then while all is well and often while it is not.

What a process sees it says every second, also while it looks less often: who is silent counts as gone, and
those who are left decide without it.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping

from holdfast.engine.breaker import Breakers, Opinion
from holdfast.engine.epochs import Epochs
from holdfast.engine.errors import BackendError
from holdfast.engine.shards import find_broken
from holdfast.engine.wire import Wire

# How often a server is looked at: while all is well, and while something fails.
CALM_S = 1.0
ALARMED_S = 0.12
ANSWER_S = 1.0

_log = logging.getLogger(__name__)

# Says what this process thinks of each shard, and whether it reaches Redis.
Report = Callable[[Mapping[int, Opinion], bool], Awaitable[None]]


class Monitor:
    """Feeds the breakers, and reports what this process sees. `reachable` is what the last look has found."""

    def __init__(
        self, wire: Wire, epochs: Epochs, breakers: Breakers, report: Report, *, probe_s: float = 30.0
    ) -> None:
        self._wire = wire
        self._epochs = epochs
        self._breakers = breakers
        self._report = report
        self._probe_s = probe_s
        self._look_again_s = CALM_S
        self._looked_at = -math.inf
        self.reachable = True

    async def run(self) -> None:
        """Look and report until cancelled, at once when a call has failed."""
        while True:
            self._breakers.noticed.clear()
            if self._look_is_due:
                await self.look()
            await self._report(self._breakers.opinions, self.reachable)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._breakers.noticed.wait()
            if self._breakers.noticed.is_set():
                await asyncio.sleep(ALARMED_S)

    @property
    def _look_is_due(self) -> bool:
        """Always while Redis serves anything; ever more seldom while Postgres serves and Redis stays away."""
        return bool(self._epochs.in_redis) or time.monotonic() - self._looked_at >= self._look_again_s

    @property
    def _pause_s(self) -> float:
        """Short while a vote may be decided."""
        if self._epochs.in_redis and self._breakers.troubled:
            return ALARMED_S
        return min(CALM_S, self._look_again_s)

    async def look(self) -> None:
        """Ask the server once whether it still serves what it should."""
        served = self._epochs.in_redis
        self._looked_at = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._wire.call("PING")
                broken = await find_broken(self._wire, served)
        except (BackendError, TimeoutError) as error:
            self._note(reachable=False)
            for shard in served:
                self._breakers.failed(shard, f"Redis does not answer: {error or 'no answer in time'}")
            return
        self._note(reachable=True)
        for shard, epoch in served.items():
            if shard in broken:
                self._breakers.trip(shard, epoch, broken[shard])
            else:
                self._breakers.close(shard)

    def _note(self, *, reachable: bool) -> None:
        patient = not reachable and not self._epochs.in_redis
        self._look_again_s = min(self._look_again_s * 2, self._probe_s) if patient else CALM_S
        if reachable is not self.reachable:
            self.reachable = reachable
            _log.warning("Redis answers again" if reachable else "Redis does not answer")
