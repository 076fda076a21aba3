"""Who serves each shard, and in which epoch, as far as this process knows.

The truth is in Postgres, where every writer checks it, and in the keys of Redis, which carry the epoch. What is known
here only decides where a call is sent: a process that is behind is refused by the fence and asks again.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from holdfast.engine.errors import Fenced


class Mode(StrEnum):
    """Who decides about the seats of a shard: Redis, Postgres, or nobody until Redis has been built from Postgres."""

    REDIS = "redis"
    DB = "db"
    RECOVERING = "recovering"


class ShardState(msgspec.Struct, frozen=True):
    """A shard's mode, and the epoch that began with it. Epochs only grow, so the greater of two is the later."""

    mode: Mode
    epoch: int


# What is believed of a shard that nobody has asked about, or that has never been in service.
UNOPENED = ShardState(Mode.RECOVERING, 0)

# The epoch in which Redis serves a shard; raises Fenced while it does not.
EpochOf = Callable[[int], int]


class Epochs:
    """The state of every shard, and those who want to know when it changes.

    `changes` counts what was news. `wanted` is set by whoever has reason to believe that this is out of date;
    `heard` says whether Postgres is being listened to, where somebody keeps these up to date.
    """

    def __init__(self, shards: int, states: Mapping[int, ShardState] | None = None) -> None:
        self.shards = shards
        self._states = dict.fromkeys(range(shards), UNOPENED) | dict(states or {})
        self._waiting: list[asyncio.Future[None]] = []
        self.changes = 0
        self.wanted = asyncio.Event()
        self.heard = True

    @classmethod
    def fixed(cls, shards: int, epoch: int) -> "Epochs":
        """Every shard served from Redis in one epoch, for a server of one's own."""
        return cls(shards, dict.fromkeys(range(shards), ShardState(Mode.REDIS, epoch)))

    def state(self, shard: int) -> ShardState:
        return self._states[shard]

    @property
    def states(self) -> Mapping[int, ShardState]:
        return self._states

    @property
    def in_redis(self) -> dict[int, int]:
        """The shards that Redis serves, and the epoch of each."""
        return {shard: state.epoch for shard, state in self._states.items() if state.mode is Mode.REDIS}

    def redis_epoch(self, shard: int) -> int:
        """The epoch in which Redis serves a shard. Raises Fenced while it does not."""
        state = self._states[shard]
        if state.mode is not Mode.REDIS:
            raise Fenced(f"shard {shard} is in mode {state.mode}, not served from Redis")
        return state.epoch

    def learn(self, shard: int, state: ShardState) -> bool:
        """Take in what Postgres said of a shard; returns whether that was news. What is older is ignored."""
        if shard not in self._states or state.epoch <= self._states[shard].epoch:
            return False
        self._states[shard] = state
        self.changes += 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        return True

    async def moved_on(self, shard: int, known: ShardState, timeout_s: float) -> bool:
        """Wait until a shard's state is another than the one known, at most so long; returns whether it is."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        while self._states[shard] == known and clock() < deadline:
            await self.next_change(deadline - clock())
        return self._states[shard] != known

    async def next_change(self, timeout_s: float) -> None:
        """Wait for the next change of any shard, at most so long."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(changed)
        try:
            await asyncio.wait([changed], timeout=timeout_s)
        finally:
            changed.cancel()
            if changed in self._waiting:
                self._waiting.remove(changed)


def epoch_function(epoch: int | EpochOf) -> EpochOf:
    """A function that tells a shard's epoch, also where one epoch is for all."""
    if not isinstance(epoch, int):
        return epoch
    number = epoch
    return lambda _: number
