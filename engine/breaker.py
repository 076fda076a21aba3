"""The circuit breaker of one process: whether it may use Redis for a shard, and what it thinks of it.

A shard's breaker opens after so many consecutive failures, or at once when the fence says that the server must not be
used. While it is open, calls are turned away without being tried, and this process votes for the shard to be taken from
Redis. A look at the server that succeeds closes it again, and takes the vote back.

A connection that breaks fails every call under way at once. That is one failure, so failures count only with a pause
between them; a server that is gone is found out in less than a second all the same, because a first failure makes the
monitor look again and again.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from holdfast.engine.epochs import Epochs

# Failures closer to each other than this are one.
PAUSE_S = 0.1


class Opinion(msgspec.Struct, frozen=True):
    """Why this process cannot use Redis for a shard; `fenced` when the server is there and must not be used."""

    epoch: int
    reason: str
    fenced: bool


class Breakers:
    """One breaker per shard. What is known of an epoch is forgotten when the next one begins."""

    def __init__(self, epochs: Epochs, *, failures: int = 5, clock: Callable[[], float] = time.monotonic) -> None:
        self._epochs = epochs
        self._limit = failures
        self._clock = clock
        self._failures: dict[int, tuple[int, int, float]] = {}
        self._opinions: dict[int, Opinion] = {}
        # Set when something is worth a look: a first failure, or a breaker that has just opened.
        self.noticed = asyncio.Event()

    def opinion(self, shard: int) -> Opinion | None:
        """Why the shard's breaker is open, or nothing while it is closed."""
        found = self._opinions.get(shard)
        if found is None or found.epoch == self._epochs.state(shard).epoch:
            return found
        del self._opinions[shard]
        return None

    @property
    def opinions(self) -> dict[int, Opinion]:
        """Every open breaker."""
        return {shard: found for shard in list(self._opinions) if (found := self.opinion(shard))}

    @property
    def troubled(self) -> bool:
        """Whether any shard fails, or has failed without a success since."""
        return bool(self._failures or self.opinions)

    def succeeded(self, shard: int) -> None:
        """An answer came."""
        if self._failures:
            self._failures.pop(shard, None)

    def failed(self, shard: int, reason: str) -> None:
        """No answer came, or one that the server cannot be used."""
        epoch, now = self._epochs.state(shard).epoch, self._clock()
        failed_in, count, at = self._failures.get(shard, (epoch, 0, 0.0))
        if failed_in != epoch:
            count = 0
        elif count and now - at < PAUSE_S:
            return
        self._failures[shard] = (epoch, count + 1, now)
        self.noticed.set()
        if count + 1 >= self._limit and self.opinion(shard) is None:
            self._opinions[shard] = Opinion(epoch, reason, fenced=False)

    def trip(self, shard: int, epoch: int, reason: str) -> None:
        """The fence has turned a call away."""
        if epoch == self._epochs.state(shard).epoch and self.opinion(shard) is None:
            self._opinions[shard] = Opinion(epoch, reason, fenced=True)
            self.noticed.set()

    def close(self, shard: int) -> None:
        """The server can be used again for this shard."""
        self._opinions.pop(shard, None)
        self._failures.pop(shard, None)
