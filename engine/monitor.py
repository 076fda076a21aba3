"""Looking at Redis from one process, now and then while all is well and often while it is not."""

import asyncio
import contextlib
import logging
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
        self.reachable = True

    async def run(self) -> None:
        """Look until cancelled, at once when a call has failed."""
        pause = CALM_S
        while True:
            self._breakers.noticed.clear()
            await self.look()
            await self._report(self._breakers.opinions, self.reachable)
            pause = self._next_pause(pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._breakers.noticed.wait()
            if self._breakers.noticed.is_set():
                pause = ALARMED_S
                await asyncio.sleep(ALARMED_S)

    def _next_pause(self, last: float) -> float:
        """Often while a vote may be decided; ever more seldom while Postgres serves and Redis stays away."""
        if self._epochs.in_redis:
            return ALARMED_S if self._breakers.troubled else CALM_S
        return CALM_S if self.reachable else min(max(CALM_S, last * 2), self._probe_s)

    async def look(self) -> None:
        """Ask the server once whether it still serves what it should."""
        served = self._epochs.in_redis
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
        if reachable is not self.reachable:
            self.reachable = reachable
            _log.warning("Redis answers again" if reachable else "Redis does not answer")
